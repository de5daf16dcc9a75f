# ${name}

${title}. ${licence}

`${name}()` computes

    ${formula}

with kernels that were generated for one problem, config and GPU. It needs nvcc or a cubin, and nothing of Attune.

| | |
|---|---|
| problem | `${problem}` |
| config | `${config}` |
| made for | ${gpu}; runs on ${runs_on} |
| element type | ${dtype}, accumulated in fp32 |

| file | content |
|---|---|
| `kernel.cu` | the kernels, in a namespace of their own; it includes nothing |
| `launch.h` | the function, its arguments, its errors; for C and C++ |
| `launch.cpp` | grids, shared memory, tensor maps, workspace, checks of each call |
| `test.cu` | checks the function against naive kernels; prints `ok` or `wrong` for each tensor; exit status 0, 1, or 2 without a GPU |
| `CMakeLists.txt` | the same build for CMake 3.18 or newer |
| `plan.json` | the launches of the problem as a document |
//% if cubin
| `kernel.cubin` | the kernels compiled by ${compiler} |
//% end

## Build

CUDA 12.4 or newer builds it. The driver is found when the program runs; nothing links `libcuda`.

```
nvcc -std=c++17 -O3 ${nvcc_flags} -o test kernel.cu launch.cpp test.cu && ./test
```

`./test --full` also checks the whole problem, which may take long. A program of yours takes `kernel.cu`, `launch.cpp` and `launch.h`.

## Call

```cpp
#include "launch.h"

${name}_call call;
${name}_problem(&call);   // sizes, scale, mask, strides of packed tensors
//% for example
${example.line}
//% end
call.workspace_bytes = ${name}_workspace_bytes(&call);
cudaMalloc(&call.workspace, call.workspace_bytes);   // once; calls on one stream may share it
if (${name}(&call, stream) != cudaSuccess) fprintf(stderr, "%s\n", ${name}_message());
```

For other sizes set the sizes, then call `${name}_pack(&call)` for packed tensors, or set the strides yourself.

## Arguments

Lengths, batch, heads, strides, scale and the mask's offsets are arguments of each call. Element type, head dim (${head_dim}), the kind of mask (${mask_words})${group_words} and
what the kernels were tuned to are fixed.

| argument | type | meaning |
|---|---|---|
| `batch` | int64 | ${batch_note} |
| `heads_q` | int64 | query heads${group_condition} |
| `heads_kv` | int64 | key/value heads, a divisor of `heads_q`; query head h reads head h / (heads_q / heads_kv) |
| `seq_q` | int64 | queries${query_condition} |
| `seq_kv` | int64 | keys${key_condition} |
| `softmax_scale` | float | multiplies the scores; positive. The problem's: ${softmax_scale} |
//% if softcap
| `softcap` | float | caps what that gives, x: softcap * tanh(x / softcap); positive. The problem's: ${softcap_value} |
//% end
//% if dropout
| `dropout` | float | the probability with which elements of P are dropped; positive and less than 1. The problem's: ${dropout_value} |
| `dropout_seed`, `dropout_offset` | uint64 | what is dropped follows from these; of a call with a `dropout_state` from its seed, and from both offsets together |
//% end
//% if hides_first_keys
| `first_offset` | int64 | query i sees the keys j with i + first_offset <= j <= i + mask_offset |
| `mask_offset` | int64 | see there; `${name}_open` hides nothing on this side |
//% end
//% if is_causal
| `mask_offset` | int64 | query i sees the keys j <= i + mask_offset. seq_kv - seq_q lets the last query see the last key; 0 lets the first query see the first key alone |
//% end
//% for readme_tensors
| `${readme_tensors.name}` | `${readme_tensors.type}` | ${readme_tensors.note} |
//% end
| `NAME_stride_batch`, `NAME_stride_head`, `NAME_stride_row` | int64 | of each tensor but ${unstrided}, in elements |
| `workspace`, `workspace_bytes` | `void*`, size_t | device memory, see below |
| `stream` | `cudaStream_t` | all work is enqueued there |

Element (b, h, i, c) of a tensor is `b * stride_batch + h * stride_head + i * stride_row + c` elements behind its pointer; the ${head_dim} columns of a row follow
each other. ${alignment_note} Strides of a dimension of extent 1 are not used.${pairs_note} The problem's tensors are packed as (${layout_words}).

## Workspace

`${name}_workspace_bytes()` tells its size for the sizes of a call: ${workspace_bytes} bytes for the problem. It starts at a multiple of 256 bytes, as `cudaMalloc` returns
it. The call itself zeroes what must be zero: ${zeroed_bytes} bytes. It may hold anything before, and holds nothing that you need afterwards. Calls that run at the same
time need workspaces of their own.
//% if has_parts

| part | at byte | bytes | zeroed |
|---|---|---|---|
//% end
//% for readme_parts
| ${readme_parts.name} | ${readme_parts.offset} | ${readme_parts.bytes} | ${readme_parts.zeroed} |
//% end

## Launches

For the problem; `launch.cpp` computes them for each call, and `plan.json` lists the parameters of each kernel.

| kernel | grid | threads | shared memory | cluster |
|---|---|---|---|---|
//% for readme_launches
| `${readme_launches.entry}` | ${readme_launches.grid} | ${readme_launches.threads} | ${readme_launches.shared} | ${readme_launches.cluster} |
//% end

## Results

${results_note}

## Errors

The function checks sizes, pointers, strides, alignment, workspace and GPU before it enqueues anything. `${name}_message()` is a sentence about the calling thread's last call.

| error | meaning |
|---|---|
| `cudaErrorInvalidValue` | a size, stride or pointer, or a workspace that is too small; the message names it |
| `cudaErrorMisalignedAddress` | a tensor or the workspace starts at an address that is not aligned |
| `cudaErrorNoKernelImageForDevice` | the current GPU is none that these kernels run on |
| `cudaErrorNotSupported` | the driver is too old |
| others | what the driver said |

A fault while kernels run shows at a later synchronization, as with any kernel.

## Without nvcc

`launch.cpp` compiled with `-D${name}_from_cubin` takes the kernels from a cubin, and needs only a C++17 compiler, the toolkit's headers and `cudart`:

```
g++ -std=c++17 -D${name}_from_cubin -I$CUDA_HOME/include -c launch.cpp
```

//% if cubin
Read `kernel.cubin` into memory and call `${name}_load(bytes)` once before the first call.
//% else
`attune export --cubin`, or `nvcc -std=c++17 ${nvcc_flags} -cubin -o kernel.cubin kernel.cu`, makes `kernel.cubin`. Read it into memory and call `${name}_load(bytes)` once before the first call.
//% end
A cubin for ${arch} runs on ${cubin_runs_on}.
