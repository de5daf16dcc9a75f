#!/usr/bin/env bash
# What `attune export` writes is built by nvcc and CMake alone, without a warning, and its test says that it needs a GPU; on a machine with a GPU it
# must pass. usage: export_test.sh ATTUNE [all]      without "all" one small kernel; exit status 77 without nvcc
set -euo pipefail
attune=$1
nvcc=$(command -v nvcc || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" || true)
if [[ -z $nvcc ]]; then
  echo "nvcc is missing: nothing was tested"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# build NAME FLAGS-OF-NVCC EXPORT-ARGUMENTS...
build() {
  local name=$1 flags=$2
  shift 2
  "$attune" export --output "$name" "$@" > "$name.log"
  # The page's own line.
  local line
  line=$(grep '^nvcc ' "$name/README.md" | head -n 1)
  line=${line%% && *}
  [[ $line == *"$flags"* ]] || { echo "$name: the page builds with other flags: $line"; exit 1; }
  (cd "$name" && PATH=$(dirname "$nvcc"):$PATH bash -c "$line") > "$name.nvcc" 2>&1 || { cat "$name.nvcc"; exit 1; }
  [[ ! -s $name.nvcc ]] || { echo "$name: nvcc warns"; cat "$name.nvcc"; exit 1; }
  local status=0
  (cd "$name" && ./test) > "$name.test" 2>&1 || status=$?
  case $status in
    0) echo "$name: ok" ;;
    2) echo "$name: built; $(tail -n 1 "$name.test")" ;;
    *) echo "$name: its test fails"; cat "$name.test"; exit 1 ;;
  esac
}

if [[ ${2:-} != all ]]; then
  build small "-arch=sm_80" --target a100 --seq 100 --head-dim 8 --config "sm80 q16 kv16 w1 st1"
  exit 0
fi
hopper="-gencode arch=compute_90a,code=sm_90a"
build backward_sm80 "-arch=sm_80" --target a100 --problem "backward fp16 hq4 hkv2 sq512 d72 align2 window=100,0 deterministic" &
build parts_sm80 "-arch=sm_80" --target a100 --problem "hq4 sq100 skv8000 d64" --config "sm80 q64 kv64 w4 st2 parts4" &
wait %1
wait %2
build forward_sm90 "$hopper" --target h200 --problem "hq16 sq4096 d128 causal" &
build backward_sm90 "$hopper" --target h200 --problem "backward fp16 hq8 hkv2 sq1000 d64 deterministic" &
wait %1
wait %2
build pairs_sm90 "$hopper" --target h200 --problem "b2 hq4 hkv2 sq1000 d64 causal bias=1hqk attention-mask=b1qk" &
build dbias_sm90 "$hopper" --target h200 --problem "backward b2 hq4 sq512 d64 bias=1hqk bias-gradient attention-mask=b11k" &
wait %1
wait %2
build fused_dbias_sm90 "$hopper" --target h200 --problem "backward b2 hq4 sq500 d64 bias=bhqk bias-gradient" &
build dbias_sm80 "-arch=sm_80" --target a100 --problem "backward fp16 b2 hq4 hkv2 sq333 d64 alibi used bias=b11k bias-fp32 bias-gradient" &
wait %1
wait %2
build dropout_sm90 "$hopper" --target h200 --problem "b2 hq4 hkv2 sq500 d64 causal dropout0.1 sink" &
build dropout_sm80 "-arch=sm_80" --target a100 --problem "backward fp16 b2 hq4 sq333 d64 dropout0.01 used bias=b11k bias-gradient" &
wait %1
wait %2
build dropout_backward_sm90 "$hopper" --target h200 --problem "backward b5 hq4 hkv2 sq500 d64 causal packed dropout0.1" &
wait %1
build packed_sm90 "$hopper" --target h200 --problem "b5 hq4 hkv2 sq500 d64 causal packed sink alibi" &
build packed_backward_sm90 "$hopper" --target h200 --problem "backward b5 hq4 sq500 d128 window=100,20 packed softcap10 sink" &
wait %1
wait %2
build packed_backward_sm80 "-arch=sm_80" --target a100 --problem "backward fp16 b3 hq4 hkv2 sq333 d64 causal packed deterministic" &
build packed_pairs_sm90 "$hopper" --target h200 --problem "b5 hq4 hkv2 sq500 d64 causal packed bias=1hqk attention-mask=b1qk max-sq120 max-skv144" &
wait %1
wait %2
build packed_dbias_sm90 "$hopper" --target h200 --problem "backward b5 hq4 hkv2 sq500 d64 packed bias=bhqk bias-gradient max-sq90 max-skv104" &
build packed_dbias_sm80 "-arch=sm_80" --target a100 --problem "backward fp16 b3 hq4 sq333 d64 causal packed bias=1hqk bias-fp32 bias-gradient max-sq77 max-skv90" &
wait %1
wait %2

# Two exports in one program, one of them from C, and the launcher without nvcc's kernels.
"$attune" export --output other --name other_kernels --target h200 --problem "hq16 sq4096 d128 causal" --cubin > /dev/null
cat > program.c << 'PROGRAM'
#include "forward_sm90/launch.h"
#include "other/launch.h"
#include <stdio.h>
int main(void) {
  attune_forward_bf16_d128_causal_call one;
  other_kernels_call two;
  attune_forward_bf16_d128_causal_problem(&one);
  other_kernels_problem(&two);
  two.q_stride_row = 3;
  printf("%lld %d %s\n", (long long)one.q_stride_batch, other_kernels(&two, 0) != cudaSuccess, other_kernels_message());
  return 0;
}
PROGRAM
toolkit=$(cd "$(dirname "$nvcc")/.." && pwd)
gcc -Wall -Wextra -Werror -std=c99 -I"$toolkit/include" -c program.c -o program.o
"$nvcc" -std=c++17 $hopper -o program program.o {forward_sm90,other}/{kernel.cu,launch.cpp}
[[ $(./program) == "8388608 1 q is null" ]] || { ./program; exit 1; }
g++ -Wall -Wextra -std=c++17 -Dother_kernels_from_cubin -I"$toolkit/include" -c other/launch.cpp -o launch.o
echo "two exports in one program, and from C: ok"

if command -v cmake > /dev/null; then
  CUDACXX=$nvcc cmake -S parts_sm80 -B cmake-build -DCMAKE_BUILD_TYPE=Release > cmake.log 2>&1 || { cat cmake.log; exit 1; }
  cmake --build cmake-build > cmake.log 2>&1 || { cat cmake.log; exit 1; }
  [[ -x $(echo cmake-build/*_test) ]]
  echo "CMake: ok"
fi
