// CTAs, or clusters of them, take tiles as far apart as there are of them; in every second round backwards, which evens out tiles that grow shorter.
struct NextTile {
  i32 round = 0;

  __device__ __forceinline__ i32 take(const Arguments&) {
    const i32 takers = static_cast<i32>(grid_size() / kCluster), taker = static_cast<i32>(block_index() / kCluster);
    ++round;
    return round * takers + (round % 2 ? takers - 1 - taker : taker);
  }
};
//% include schedule/key_tiles_taken_ahead
