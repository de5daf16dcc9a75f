//% if packed_sequences
    sequence = placed.sequence;
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
