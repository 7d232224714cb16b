#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

/// Writes a whole file so that a reader sees either the old or the new content: temporary file beside it,
/// fsync, rename, fsync of the folder. Throws Error with the path and the system's reason (a full disk, say).
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

/// The whole of a text file. Throws Error naming it where it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// Makes a folder and its parents. Throws Error naming the path and the reason.
void make_folders(const std::filesystem::path& path);

}  // namespace lockstep
