#pragma once

#include <cstddef>

#include "generator/families/kernel_family.h"

namespace attune {

// What kernels of warpgroups share: their tiles in shared memory, and the registers of a thread.

constexpr int kWarpgroupThreads = 128;
constexpr int kWarpgroupRows = 64;                    // of a product
constexpr std::size_t kSwizzledTileAlignment = 1024;  // of the 128-byte swizzle's pattern
constexpr int kMbarrierBytes = 8;
/// That setmaxnreg is asked for: with 255 ptxas leaves none to work with.
constexpr int kMostRegistersOfThread = 240;

/// Columns of a panel of shared memory, whose rows have the bytes of the swizzle's span: the least that a head dim
/// needs.
int panel_columns(int head_dim);
/// As a matrix descriptor names the swizzle whose span a panel's row fills.
int swizzle_mode(int panel_columns);

/// KernelFamily::supports of the families that are written for wgmma and TMA: compute capability 9.0, and rows that TMA
/// can copy.
bool supports_wgmma(const Question& question, Reasons* reasons);

/// Clusters of sequences whose lengths are used ones are refused: of a tile that its CTAs load or walk together, one
/// may have a part that lies behind the sequence as a whole, which tensor maps that end there cannot copy.
void check_clusters(const AttentionProblem& problem, const KernelConfig& config, Reasons* reasons);

/// The config without the clusters that check_clusters() refuses; whether it had some. What to say of it then.
bool leave_clusters(const AttentionProblem& problem, KernelConfig* config);
inline constexpr const char* kWithoutClusters = "without clusters, which used lengths do not go with";

}  // namespace attune
