float* statistics = args.statistics + 2 * ((static_cast<i64>(batch_head) * tiles + tile) * kRows + query - ${tile_of_sequence} * kRows);
st_global_f32(statistics, lse_log2);
st_global_f32(statistics + 1, sees ? ${delta} : 0.0f);
