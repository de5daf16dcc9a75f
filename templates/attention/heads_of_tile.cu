//% if packed
    sequence = Sequence(args, index.batch_head / args.heads_kv);
    head_kv = index.batch_head - sequence.batch * args.heads_kv;
    head = head_kv * kGroup;
//% else
    sequence = Sequence(args, index.batch_head / args.heads_q);
    head = index.batch_head - sequence.batch * args.heads_q;
    head_kv = head / args.group_size;
//% end
