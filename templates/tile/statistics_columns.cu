// LSE of all queries of a block, then their deltas. Of sixteen queries those lie together that are a lane's columns in fragments.
const i32 of_block = query - ${tile_of_sequence} * kRows, of_sixteen = of_block % 8 / 2 * 4 + of_block % 16 / 8 * 2 + of_block % 2;
float* statistics = args.statistics + 2 * (static_cast<i64>(batch_head) * tiles + tile) * kRows + of_block / 16 * 16 + of_sixteen;
st_global_f32(statistics, lse_log2);
st_global_f32(statistics + kRows, sees ? ${delta} : 0.0f);
