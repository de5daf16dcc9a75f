/* The C interface as a C program sees it, on a machine with or without a GPU: every error path that needs none. */
#include "attune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

static attune_status forward(attune_problem problem) { return attune_forward(&problem, NULL, 0, NULL, 0, NULL); }
static attune_status backward(attune_problem problem) { return attune_backward(&problem, NULL, 0, NULL, 0, NULL); }

static void refuses_bad_problems(void) {
  attune_problem problem = valid_problem();
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(NULL, NULL, 0, NULL, 0, NULL), "problem is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(NULL, NULL, 0, NULL, 0, NULL), "problem is a null pointer");

  problem.struct_size = 0;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "struct_size");
  problem = valid_problem();
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
  problem.softmax_scale = (float)-1e-46;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "softmax_scale -0");
  problem.softmax_scale = NAN;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "positive and finite");
  problem.softmax_scale = INFINITY;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "positive and finite");
  problem.softmax_scale = 3e38f; /* times log2(e) it is no float any more */
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "scale 3e+38");
  problem = valid_problem();
  problem.alignment = 4;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "4");
  problem = valid_problem();
  problem.pass = 2;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "pass 2");
  problem = valid_problem();
  problem.deterministic = 2;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "deterministic 2");
  problem = valid_problem();
  problem.invariant = -1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "invariant -1");
  problem = valid_problem();
  problem.sink = 2;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "sink 2");
  problem = valid_problem();
  problem.used_lengths = 2;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "used_lengths 2");
  problem = valid_problem();
  problem.softcap = -7;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "softcap -7");
  problem = valid_problem();
  problem.dropout = -0.1f;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "dropout -0.1");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, backward(problem), "dropout -0.1");
  problem.dropout = 1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "dropout 1");
  problem.dropout = NAN;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "dropout nan");
  problem.dropout = 0.1f;
  problem.invariant = 1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "dropout");
  problem = valid_problem();
  problem.reserved = 1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "reserved");
}

/* Sums and differences of these are no int64. */
static void refuses_extreme_numbers(void) {
  attune_problem problem = valid_problem();
  problem.mask = ATTUNE_MASK_CAUSAL;
  problem.seq_q = INT64_MIN;
  problem.seq_kv = INT64_MAX;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "query length -9223372036854775808");
  problem.seq_q = INT64_MAX;
  problem.seq_kv = INT64_MIN;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "key length -9223372036854775808");
  problem.mask = ATTUNE_MASK_WINDOW;
  problem.window_left = INT64_MAX;
  problem.window_right = 0;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "key length -9223372036854775808");
  problem = valid_problem();
  problem.mask = ATTUNE_MASK_CAUSAL_OFFSET;
  problem.mask_offset = INT64_MAX;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "mask offset 9223372036854775807");
  problem.mask_offset = INT64_MIN;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "mask offset -9223372036854775808");
  problem = valid_problem();
  problem.batch = problem.heads_q = INT64_MAX;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "batch 9223372036854775807");
  problem = valid_problem();
  problem.heads_q = INT32_MAX;
  problem.seq_q = problem.seq_kv = INT32_MAX - 2000;
  problem.head_dim = 256;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "elements");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, backward(problem), "elements");
}

static void refuses_bad_operands(void) {
  attune_problem problem = valid_problem();
  attune_operand operands[2] = {{ATTUNE_Q, 0, {0}}, {ATTUNE_D_LSE, 0, {0}}};
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, NULL, 3, NULL, 0, NULL),
               "operands is a null pointer, but count is 3");
  operands[1].name = ATTUNE_DROPOUT_STATE + 1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, operands, 2, NULL, 0, NULL),
               "operands[1].name 21 is unknown");
  problem.packed = 7;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, operands, 2, NULL, 0, NULL),
               "packed 7");
  problem.packed = 0;
  problem.max_seq_q = 9;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem),
               "most queries of a sequence 9: only packed sequences with a bias or an attention mask have it");
  problem.max_seq_q = 0;
  problem.bias = ATTUNE_PAIRS_HEADS;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, operands, 2, NULL, 0, NULL),
               "bias 4: it must be 0, or ATTUNE_PAIRS");
  problem.bias = 0;
  problem.attention_mask = 16 + ATTUNE_PAIRS;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(&problem, operands, 2, NULL, 0, NULL),
               "attention_mask 17: it must be 0, or ATTUNE_PAIRS");
  problem.attention_mask = 0;
  operands[1].name = INT32_MIN;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, operands, 2, NULL, 0, NULL),
               "operands[1].name -2147483648 is unknown");
  operands[1].name = ATTUNE_Q;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, operands, 2, NULL, 0, NULL),
               "operands[1] is q, which was given before");
  operands[0].reserved = 1;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_backward(&problem, operands, 2, NULL, 0, NULL),
               "operands[0].reserved");
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, backward(problem), "head dim 60");
}

/* Callers with older headers, whose problem ended where its pass is now, or what is invariant. */
static void reads_older_structs(void) {
  attune_problem problem = valid_problem();
  problem.struct_size = offsetof(attune_problem, dropout);
  problem.dropout = 99; /* not the caller's */
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "60");
  problem.struct_size = offsetof(attune_problem, max_seq_q);
  problem.max_seq_q = problem.max_seq_kv = 99; /* not the caller's */
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "60");
  problem.struct_size = offsetof(attune_problem, invariant);
  problem.invariant = 99, problem.softcap = -99, problem.sink = 99; /* not the caller's */
  problem.head_dim = 60;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "60");
  problem.struct_size = offsetof(attune_problem, pass);
  problem.pass = problem.deterministic = 99;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, forward(problem), "60");
}

/* A caller with a newer header than the library's is refused, whatever its fields say, and not a byte beyond the known
 * ones is read: the problem lies at the end of its allocation, where AddressSanitizer watches. */
static void refuses_newer_structs(void) {
  char version[64];
  attune_problem* problem = malloc(sizeof(*problem));
  EXPECT(problem != NULL);
  if (problem == NULL) exit(1);
  snprintf(version, sizeof(version), "libattune %s knows an attune_problem of %u bytes", attune_version(),
           (unsigned)sizeof(*problem));
  *problem = valid_problem();
  problem->struct_size = sizeof(*problem) + 8;
  EXPECT_ERROR(ATTUNE_ERROR_UNSUPPORTED, attune_forward(problem, NULL, 0, NULL, 0, NULL), "struct_size is 192");
  EXPECT_ERROR(ATTUNE_ERROR_UNSUPPORTED, attune_forward(problem, NULL, 0, NULL, 0, NULL), "update the library");
  EXPECT_ERROR(ATTUNE_ERROR_UNSUPPORTED, attune_backward(problem, NULL, 0, NULL, 0, NULL), version);
  problem->struct_size = UINT32_MAX;
  EXPECT_ERROR(ATTUNE_ERROR_UNSUPPORTED, attune_forward(problem, NULL, 0, NULL, 0, NULL), "struct_size is 4294967295");
  problem->struct_size = offsetof(attune_problem, pass) + 4; /* half of what the second header added */
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_forward(problem, NULL, 0, NULL, 0, NULL), "struct_size is 84");
  free(problem);
}

static void tells_its_version(void) {
  char version[64];
  snprintf(version, sizeof(version), "%d.%d.%d", ATTUNE_VERSION_MAJOR, ATTUNE_VERSION_MINOR, ATTUNE_VERSION_PATCH);
  EXPECT(strcmp(attune_version(), version) == 0);
  EXPECT(ATTUNE_VERSION_NUMBER ==
         ATTUNE_VERSION_MAJOR * 10000 + ATTUNE_VERSION_MINOR * 100 + ATTUNE_VERSION_PATCH);
}

static void refuses_null_results(void) {
  attune_problem problem = valid_problem();
  attune_prepared* prepared = (attune_prepared*)&problem;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_workspace_bytes(&problem, NULL), "bytes is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_describe(&problem, NULL, 10, NULL), "text is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_prepare(&problem, NULL, NULL), "prepared is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_prepare(&problem, "sm80 q128 nonsense7", &prepared), "nonsense7");
  EXPECT(prepared == NULL);
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_launch(NULL, &problem, NULL, 0, NULL, 0, NULL), "prepared is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_launch_backward(NULL, &problem, NULL, 0, NULL, 0, NULL),
               "prepared is a null pointer");
  attune_release(NULL);
}

struct heard {
  int messages, level, refused;
  char text[4096];
};

static void hear(int32_t level, const char* message, void* user) {
  struct heard* heard = user;
  ++heard->messages;
  heard->level = level;
  snprintf(heard->text, sizeof(heard->text), "%s", message);
  /* From inside a callback, the library can be called. */
  heard->refused += attune_set_log_callback(hear, user, 17) == ATTUNE_ERROR_INVALID_ARGUMENT;
}

static void tells_a_callback(void) {
  struct heard heard = {0};
  attune_problem problem = valid_problem();
  size_t bytes = 0;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_set_log_callback(hear, &heard, 3), "least_level 3");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_set_log_callback(hear, &heard, -1), "least_level -1");
  EXPECT(attune_set_log_callback(hear, &heard, ATTUNE_LOG_WARNING) == ATTUNE_OK);
  EXPECT(attune_set_log_callback(NULL, NULL, 99) == ATTUNE_OK);
  attune_workspace_bytes(&problem, &bytes);
  EXPECT(heard.messages == 0);
}

/* A valid call ends at what this machine lacks: a GPU, or else the tensors. Either way the process goes on. */
static void ends_at_what_is_missing(void) {
  attune_problem problem = valid_problem();
  size_t bytes = 0;
  const attune_status status = forward(problem);
  EXPECT(status == ATTUNE_ERROR_NO_DEVICE || status == ATTUNE_ERROR_INVALID_ARGUMENT);
  EXPECT(strlen(attune_last_error()) > 20);
  EXPECT(backward(problem) == status);
  problem.pass = ATTUNE_BACKWARD;
  problem.deterministic = 1;
  problem.invariant = 1;
  EXPECT(forward(problem) == status && backward(problem) == status); /* one problem serves both passes */
  if (status == ATTUNE_ERROR_NO_DEVICE) {
    EXPECT(attune_workspace_bytes(&problem, &bytes) == ATTUNE_ERROR_NO_DEVICE);
    EXPECT(attune_describe(&problem, NULL, 0, &bytes) == ATTUNE_ERROR_NO_DEVICE);
    EXPECT(attune_unsupported(&problem, NULL, 0, &bytes) == ATTUNE_ERROR_NO_DEVICE);
  } else {
    char text[512];
    EXPECT(attune_unsupported(&problem, text, sizeof text, &bytes) == ATTUNE_OK && bytes == 1 && text[0] == 0);
    problem.head_dim = 60;
    EXPECT(attune_unsupported(&problem, text, sizeof text, &bytes) == ATTUNE_OK && strstr(text, "head dim 60") != NULL);
    problem.head_dim = 64;
  }
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_unsupported(&problem, NULL, 8, &bytes), "text is a null pointer");
  problem.dtype = 9;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_unsupported(&problem, NULL, 0, &bytes), "dtype 9");
  problem.dtype = ATTUNE_BF16;
  problem.device = 60000;
  EXPECT(attune_workspace_bytes(&problem, &bytes) == ATTUNE_ERROR_NO_DEVICE);
}

static void tells_of_the_machine(void) {
  char text[4096];
  size_t bytes = 0;
  EXPECT(attune_machine(text, sizeof text, &bytes) == ATTUNE_OK);
  EXPECT(bytes == strlen(text) + 1);
  EXPECT(strncmp(text, "GPU\tnone: ", 10) == 0 || strncmp(text, "cuda:0\t", 7) == 0);
  EXPECT(strstr(text, "\nNVRTC\t") != NULL && strstr(text, "\npresets\t") != NULL && strstr(text, "\ncache\t") != NULL);
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_machine(NULL, 8, &bytes), "text is a null pointer");
}

static void refuses_packs_that_are_none(void) {
  char text[64];
  size_t bytes = 0;
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_load_pack(NULL), "path is a null pointer");
  EXPECT_ERROR(ATTUNE_ERROR_IO, attune_load_pack("/nowhere/model.attune"), "there is no pack /nowhere/model.attune");
  EXPECT_ERROR(ATTUNE_ERROR_IO, attune_load_pack("/"), "it is a folder");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_digest(-1, text, sizeof text, &bytes), "device -1");
  EXPECT_ERROR(ATTUNE_ERROR_INVALID_ARGUMENT, attune_digest(0, NULL, sizeof text, &bytes), "text is a null pointer");
  EXPECT(attune_digest(60000, text, sizeof text, &bytes) == ATTUNE_ERROR_NO_DEVICE);
}

int main(void) {
  EXPECT(strcmp(attune_last_error(), "") == 0);
  tells_its_version();
  refuses_bad_problems();
  refuses_extreme_numbers();
  refuses_bad_operands();
  refuses_newer_structs();
  reads_older_structs();
  refuses_null_results();
  tells_a_callback();
  ends_at_what_is_missing();
  tells_of_the_machine();
  refuses_packs_that_are_none();
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
