//% if packed_sequences
    const TileOfSequence place(args.cu_seqlens_q, args.batch, args.seq_q, index.tile, ${tile_positions});
    index.tile = place.tile;
    sequence = Sequence(args, place.batch);
//% if packed
    head_kv = index.batch_head;
    head = head_kv * kGroup;
//% else
    head = index.batch_head;
    head_kv = head / args.group_size;
//% end
//% else
//% if pair_tensors
    const HeadOfBatch of_batch(args, index.batch_head, ${tile_heads_of_batch});
    sequence = Sequence(args, of_batch.batch);
//% if packed
    head_kv = of_batch.head;
    head = head_kv * kGroup;
//% else
    head = of_batch.head;
    head_kv = head / args.group_size;
//% end
//% else
//% if packed
    sequence = Sequence(args, index.batch_head / args.heads_kv);
    head_kv = index.batch_head - sequence.batch * args.heads_kv;
    head = head_kv * kGroup;
//% else
    sequence = Sequence(args, index.batch_head / args.heads_q);
    head = index.batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
//% end
//% end
//% end
