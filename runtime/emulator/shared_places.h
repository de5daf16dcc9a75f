#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "runtime/emulator/cta_group.h"

namespace attune {

/// The 16 bytes of shared memory that an address lies in, counted from where the CTA's begin.
inline std::uint32_t granule_of(std::uint32_t address) { return (address - kSharedBase) / kGranuleBytes; }

/// How messages name a place in shared memory: by its distance from where the CTA's bytes begin.
inline std::string place(std::uint32_t address) {
  return address < kSharedBase ? fmt::format("{:#x}", address) : fmt::format("+{:#x}", address - kSharedBase);
}

/// What the phase of an mbarrier still waits for.
inline std::string missing(const Mbarrier& barrier) {
  return fmt::format("{} of {} arrivals and {} bytes are missing", barrier.missing, barrier.arrivals, barrier.bytes);
}

}  // namespace attune
