// Converts the fp32 sums of one tile of ${rows_of} of one head to gradients:
//
//% for gradients
//   ${gradients.formula}
//% end
//
${converting_warp}

//% include primitives/mma_sync

struct Arguments {
//% for argument_fields
  ${argument_fields.type} ${argument_fields.name};
//% end
};
constexpr u32 kArgumentBytes = ${argument_bytes};

constexpr i32 kTileRows = ${rows_per_tile}, kHeadDimQk = ${head_dim_qk}, kElementBytes = ${element_bytes}, kThreads = ${threads};
constexpr i32 kChunks = kHeadDimQk / 8, kChunksAtOnce = 4, kParts = (kChunks + kChunksAtOnce - 1) / kChunksAtOnce;

//% include tile/${chunk_access}
//% include tile/pack_elements
//% if !transposed_sums
//% include wgmma/transpose_in_quad
//% end
//% include attention/sequence_${sequence}
//% include mma_sync/sums_${sums_order}
//% include mma_sync/sums_place
//% if transposed_sums
//% include mma_sync/sums_place_transposed
//% end

//% include tile/convert_${sums_layout}

extern "C" __global__ void __launch_bounds__(kThreads) ${entry}(const __grid_constant__ Arguments args) {
//% if programmatic_launch
  griddepcontrol_wait();
//% end
//% if followed
  griddepcontrol_launch_dependents();  // the next kernel reads what was there before this one
//% end
//% if packed_sequences
  const i32 number = static_cast<i32>(block_index()) % args.${tiles}, batch_head = static_cast<i32>(block_index()) / args.${tiles};
  const TileOfSequence found(args.${begins}, args.batch, args.${all_rows}, number, kTileRows);
  const Sequence sequence(args, found.batch);
  const i32 tile = found.tile, head = batch_head;
//% else
  const i32 tile = static_cast<i32>(block_index()) % args.${tiles}, batch_head = static_cast<i32>(block_index()) / args.${tiles};
  const Sequence sequence(args, batch_head / args.${heads});
  const i32 head = batch_head - sequence.batch * args.${heads};
//% end
//% for gradients
  char* ${gradients.name} = static_cast<char*>(args.${gradients.name}) +
              kElementBytes * (sequence.${row}_offset(args.${gradients.name}_stride_batch, args.${gradients.name}_stride_row) +
                   head * args.${gradients.name}_stride_head);
  convert(args.${gradients.name}_sums, ${gradients.scale}, ${gradients.name}, kElementBytes * args.${gradients.name}_stride_row, batch_head, tile, stored_${rows_of}(args, sequence), first_block_of_${rows_of}<kTileRows>(sequence),
          blocks_of_${rows_of}<kTileRows>(args));
//% end
}
//% include primitives/entry/${target}
