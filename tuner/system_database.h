#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "tuner/tuning_database.h"

namespace attune {

/// Where the system database is: $ATTUNE_SYSTEM_DATABASE if that is set (empty: nowhere), else share/attune/system.db
/// beside the folder of the program or library that this code is part of, as bin/attune or lib/libattune.so; empty if
/// that is not known. There need be no file.
std::filesystem::path system_database_path();

/// Opens it; null if there is none, or if it is switched off. One that $ATTUNE_SYSTEM_DATABASE names and that is not
/// there stands as empty, with a note.
std::shared_ptr<TuningDatabase> open_system_database();

/// Of each problem and device what a system database needs: the row that best() would choose and, where another config
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
