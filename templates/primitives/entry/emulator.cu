static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");

extern "C" __attribute__((visibility("default"))) void attune_emulator_entry(const void* arguments) {
  ${entry}(*static_cast<const Arguments*>(arguments));
}
