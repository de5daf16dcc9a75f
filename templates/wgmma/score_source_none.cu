// No step asks for scores a second time.
struct ScoreSource {
  const Arguments& args;
  i32 tile_number;
  i32 row, block;
};
