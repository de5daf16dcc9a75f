#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "tuner/database/tuning_database.h"

namespace attune {

/// The file that $ATTUNE_SYSTEM_DATABASE names in place of the presets that are part of this program or library; empty
/// if it names none. There need be no file.
std::filesystem::path system_database_path();

/// Why there are none, as the rest of a sentence, where $ATTUNE_SYSTEM_DATABASE is set and empty; else empty.
std::string_view presets_switched_off();

/// Opens the shipped presets, or the file that stands for them; null if $ATTUNE_SYSTEM_DATABASE is set and empty, which
/// switches them off. A file that is not there stands as empty, with a note.
std::shared_ptr<TuningDatabase> open_system_database();

/// What a system database needs of each problem and device: the row that best() would choose and, where another config
/// is the default there and is right, the row that stands for it, so that what tuning gained can be seen. Their samples
/// and clocks are left out; the quantiles stay. Estimates are no results and are left out whole. Keeps the order.
std::vector<Measurement> rows_to_ship(const std::vector<Measurement>& rows);

/// Writes a system database of these rows, which came from `inputs`: whole or not at all, one file without a log, the
/// same bytes for the same rows. Of databases it replaces one that it made itself, no other. Throws Error that names
/// the file and the cause.
void write_system_database(const std::filesystem::path& path, const std::vector<Measurement>& rows,
                           const std::vector<std::filesystem::path>& inputs = {});

/// Whether a file that begins with these bytes (100 are enough) was made by write_system_database() and not written to
/// since, by whatever program.
bool is_system_database(std::string_view head);

}  // namespace attune
