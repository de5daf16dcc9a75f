#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tuner/database/tuning_database.h"

namespace attune {

/// Databases in the order in which they win: of this very problem the first one's rows before the next one's.
using DatabaseLayers = std::vector<std::shared_ptr<TuningDatabase>>;

/// The files that $ATTUNE_SYSTEM_DATABASE names, with `:` between them, in place of the presets that are part of this
/// program or library; none if it is not set. The word `presets` among them is no file: it stands for the presets.
/// There need be no such files.
std::vector<std::filesystem::path> system_database_paths();

/// Why there are none, as the rest of a sentence, where $ATTUNE_SYSTEM_DATABASE is set and empty; else empty.
std::string_view presets_switched_off();

/// Opens the shipped presets, or what $ATTUNE_SYSTEM_DATABASE names in their place, in its order, each file once; none
/// if it is set and empty, which switches them off. A file that is not there stands as empty, with a note.
DatabaseLayers open_system_databases();

/// All rows of several databases in one, in memory, equal ones once, for questions about all of them; `name` stands for
/// its path. Throws Error(database).
std::shared_ptr<TuningDatabase> join_databases(const DatabaseLayers& databases, const std::string& name);

/// What a system database needs of each problem and device: the row that best() would choose and, where another config
/// is the default there and is right, the row that stands for it, so that what tuning gained can be seen. Their samples
/// and clocks are left out; the quantiles stay. Estimates are no results and are left out whole. Keeps the order.
std::vector<Measurement> rows_to_ship(const std::vector<Measurement>& rows);

/// Writes a system database of these rows, which came from `inputs`: whole or not at all, one file without a log, the
/// same bytes for the same rows and label. Of databases it replaces one that it made itself, no other. Throws Error
/// that names the file and the cause, Error(invalid_argument) as check_label().
void write_system_database(const std::filesystem::path& path, const std::vector<Measurement>& rows,
                           const std::vector<std::filesystem::path>& inputs = {}, const DatabaseLabel& label = {});

/// The bytes of that file. Throws Error.
std::string system_database_image(const std::vector<Measurement>& rows, const DatabaseLabel& label = {});

/// Whether a file that begins with these bytes (100 are enough) was made by write_system_database() and not written to
/// since, by whatever program.
bool is_system_database(std::string_view head);

}  // namespace attune
