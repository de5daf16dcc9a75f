#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/config/kernel_config.h"
#include "generator/device/device_spec.h"
#include "generator/problem/attention_problem.h"
#include "generator/text/renderer.h"

namespace attune {

struct KernelLaunch;

/// Adds why tiles of keys cannot have the config's order, or its sections.
void check_key_tile_order(const KernelConfig& config, std::vector<std::string>* reasons);

/// The orders of tiles of keys worth a search. Head after head the last head begins with its longest tile; without a
/// mask all tiles take equally long. With tickets a head's tiles begin one after the other, whatever the mask, and it
/// matters how many heads alternate; only deterministic problems need them.
std::vector<TileOrder> key_tile_orders(const AttentionProblem& problem, DqAccumulation dq);

/// The values of kv_grad_per_query_head worth a search. Where heads share keys, tiles of each query head are more CTAs,
/// for small problems, but dK and dV go through sums.
std::vector<bool> kv_grad_choices(const AttentionProblem& problem);

/// The sections of the kernel of key tiles, were its order sections: what l2_parts says, but with tickets and 64 keys a
/// tile, which read and add twice as much as 128 keys do, 5/8 of that (of an H200's 60 MB of L2, sections of 42 MB were
/// up to 20 % slower than such of 21 MB). On Hopper and without tickets they have no more tiles than run at once: of
/// short heads more were up to 25 % slower where tiles walk through a group of heads, and up to 3 % elsewhere.
void set_key_tile_sections(const KernelConfig& config, const DeviceSpec& device, KernelLaunch* launch);

/// KernelLaunch::section_heads() of the kernel of key tiles, were its order sections.
std::int32_t key_tile_section_heads(const AttentionProblem& problem, const KernelConfig& config,
                                    const DeviceSpec& device);

/// What schedule/list_key_tiles is bound to: the longest tiles come first.
void bind_list_of_key_tiles(const KernelConfig& config, TemplateBindings* bindings);

/// What the templates of every kernel of key tiles name: whose tiles they are, which one a CTA takes, where dK and dV
/// go.
void bind_key_tiles(const AttentionProblem& problem, const KernelConfig& config, TemplateBindings* bindings);

}  // namespace attune
