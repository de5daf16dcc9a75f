static_assert(sizeof(Arguments) == kArgumentBytes, "the host packs the arguments as this compiler lays them out");
