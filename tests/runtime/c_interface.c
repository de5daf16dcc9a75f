/* The C interface as a C program sees it, on a machine with or without a GPU: every error path that needs none. */
#include "attune.h"

#include <stdio.h>
#include <string.h>

static int failures = 0;

static void expect(int condition, const char* what, int line) {
  if (condition) return;
  ++failures;
  printf("line %d: %s; the last error is: %s\n", line, what, attune_last_error());
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)
#define EXPECT_ERROR(status, call, words)                 \
  do {                                                    \
    EXPECT((call) == (status));                           \
    EXPECT(strstr(attune_last_error(), (words)) != NULL); \
  } while (0)

static attune_problem valid_problem(void) {
  attune_problem problem = {0};
  problem.struct_size = sizeof(problem);
  problem.dtype = ATTUNE_BF16;
  problem.batch = 1;
  problem.heads_q = 4;
  problem.seq_q = 128;
  problem.head_dim = 64;
  return problem;
}

static attune_tensors null_tensors(void) {
  attune_tensors tensors = {0};
  tensors.struct_size = sizeof(tensors);
  return tensors;
}

static attune_status forward(attune_problem problem) {
  attune_tensors tensors = null_tensors();
  return attune_forward(&problem, &tensors, NULL, 0, NULL);
}

static attune_gradients null_gradients(void) {
  attune_gradients gradients = {0};
  gradients.struct_size = sizeof(gradients);
  return gradients;
}

static attune_status backward(attune_problem problem) {
  attune_tensors tensors = null_tensors();
  attune_gradients gradients = null_gradients();
  return attune_backward(&problem, &tensors, &gradients, NULL, 0, NULL);
}

static void refuses_bad_problems(void) {
  attune_problem problem = valid_problem();
  attune_tensors tensors = null_tensors();
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(NULL, &tensors, NULL, 0, NULL), "problem is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, NULL, NULL, 0, NULL), "tensors is a null pointer");

  problem.struct_size = 0;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "struct_size");
  problem = valid_problem();
  tensors.struct_size = 8;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, &tensors, NULL, 0, NULL), "sizeof(attune_tensors)");

  problem.dtype = 9;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "dtype 9");
  problem = valid_problem();
  problem.mask = 7;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "mask 7");
  problem = valid_problem();
  problem.layout = -1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "layout -1");
  problem = valid_problem();
  problem.device = -3;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "device -3");
  problem = valid_problem();
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "60");
  problem.head_dim = 0;
  EXPECT(forward(problem) == ATTUNE_ERROR_INVALID_ARGUMENT);
  problem = valid_problem();
  problem.heads_kv = 3;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "3");
  problem = valid_problem();
  problem.batch = 0;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "batch");
  problem = valid_problem();
  problem.seq_q = -5;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "-5");
  problem = valid_problem();
  problem.softmax_scale = -0.5f;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "-0.5");
  problem = valid_problem();
  problem.alignment = 4;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "4");
  problem = valid_problem();
  problem.pass = 2;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "pass 2");
  problem = valid_problem();
  problem.deterministic = 2;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "deterministic 2");
}

static void refuses_bad_gradients(void) {
  attune_problem problem = valid_problem();
  attune_tensors tensors = null_tensors();
  attune_gradients gradients = null_gradients();
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(NULL, &tensors, &gradients, NULL, 0, NULL),
               "problem is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, NULL, &gradients, NULL, 0, NULL),
               "tensors is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, &tensors, NULL, NULL, 0, NULL),
               "gradients is a null pointer");
  gradients.struct_size = 8;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, &tensors, &gradients, NULL, 0, NULL),
               "sizeof(attune_gradients)");
  gradients = null_gradients();
  gradients.reserved = 1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, &tensors, &gradients, NULL, 0, NULL),
               "gradients.reserved");
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, backward(problem), "head dim 60");
}

/* A caller with the first header, whose problem ended where its pass is now. */
static void reads_older_structs(void) {
  attune_problem problem = valid_problem();
  problem.struct_size = offsetof(attune_problem, pass);
  problem.pass = problem.deterministic = 99; /* not the caller's */
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "60");
}

/* A caller with a newer header: extra fields that are 0 are ignored, others are refused. */
static void reads_newer_structs(void) {
  struct {
    attune_problem known;
    int64_t later;
  } newer;
  attune_tensors tensors = null_tensors();
  memset(&newer, 0, sizeof(newer));
  newer.known = valid_problem();
  newer.known.struct_size = sizeof(newer);
  newer.later = 1;
  EXPECT_ERROR(ATTUNE_ERROR_UNSUPPORTED, attune_forward(&newer.known, &tensors, NULL, 0, NULL), "update the library");
  newer.later = 0;
  newer.known.head_dim = 60; /* past the struct, on to the problem */
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&newer.known, &tensors, NULL, 0, NULL), "60");
}

static void refuses_null_results(void) {
  attune_problem problem = valid_problem();
  attune_prepared* prepared = (attune_prepared*)&problem;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_workspace_bytes(&problem, NULL), "bytes is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_describe(&problem, NULL, 10, NULL), "text is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_prepare(&problem, NULL, NULL), "prepared is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_prepare(&problem, "sm80 q128 nonsense7", &prepared), "nonsense7");
  EXPECT(prepared == NULL);
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_launch(NULL, &problem, NULL, NULL, 0, NULL), "prepared is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_launch_backward(NULL, &problem, NULL, NULL, NULL, 0, NULL),
               "prepared is a null pointer");
  attune_release(NULL);
}

/* A valid call ends at what this machine lacks: a GPU, or else the null tensors. Either way the process goes on. */
static void ends_at_what_is_missing(void) {
  attune_problem problem = valid_problem();
  size_t bytes = 0;
  const attune_status status = forward(problem);
  EXPECT(status == ATTUNE_ERROR_NO_DEVICE || status == ATTUNE_ERROR_INVALID_ARGUMENT);
  EXPECT(strlen(attune_last_error()) > 20);
  EXPECT(backward(problem) == status);
  problem.pass = ATTUNE_BACKWARD;
  problem.deterministic = 1;
  EXPECT(forward(problem) == status && backward(problem) == status); /* one problem serves both passes */
  if (status == ATTUNE_ERROR_NO_DEVICE) {
    EXPECT(attune_workspace_bytes(&problem, &bytes) == ATTUNE_ERROR_NO_DEVICE);
    EXPECT(attune_describe(&problem, NULL, 0, &bytes) == ATTUNE_ERROR_NO_DEVICE);
  }
  problem.device = 60000;
  EXPECT(attune_workspace_bytes(&problem, &bytes) == ATTUNE_ERROR_NO_DEVICE);
}

int main(void) {
  EXPECT(strcmp(attune_last_error(), "") == 0);
  EXPECT(strlen(attune_version()) >= 5);
  refuses_bad_problems();
  refuses_bad_gradients();
  reads_newer_structs();
  reads_older_structs();
  refuses_null_results();
  ends_at_what_is_missing();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
