/* One attention call by the C interface, without a GPU: what the library says about it. */
#include <attune.h>
#include <stdio.h>

int main(void) {
  attune_problem problem = {sizeof problem};
  problem.dtype = ATTUNE_BF16;
  problem.batch = 1;
  problem.heads_q = 16;
  problem.seq_q = 4096;
  problem.head_dim = 128;
  problem.mask = ATTUNE_MASK_CAUSAL;
  size_t bytes = 0;
  const attune_status status = attune_workspace_bytes(&problem, &bytes);
  printf("Attune %s\n", attune_version());
  if (status == ATTUNE_OK)
    printf("a workspace of %zu bytes\n", bytes);
  else
    printf("no call: %s\n", attune_last_error());
  return status == ATTUNE_OK || status == ATTUNE_ERROR_NO_DEVICE ? 0 : 1;
}
