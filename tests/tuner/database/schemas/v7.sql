-- A tuning database as Attune left it with its seventh schema, begun with the first: what later ones must be able to take
-- over. Never changes. Statements and content hashes are those of that version.
PRAGMA application_id = 0x4174746e;
PRAGMA user_version = 7;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE device (
  id       INTEGER PRIMARY KEY,
  name     TEXT    NOT NULL,            -- the driver's name of the model
  sm_count INTEGER NOT NULL,
  UNIQUE (name, sm_count)
) STRICT;
INSERT INTO "device" VALUES(1,'NVIDIA H200',132);
INSERT INTO "device" VALUES(2,'NVIDIA A100-SXM4-80GB',108);
CREATE TABLE measurement (
  id            INTEGER PRIMARY KEY,    -- rises with the order of appending
  content_hash  TEXT    NOT NULL UNIQUE,
  problem_id    INTEGER NOT NULL REFERENCES problem (id),
  device_id     INTEGER NOT NULL REFERENCES device (id),
  provenance_id INTEGER NOT NULL REFERENCES provenance (id),
  config        TEXT    NOT NULL,       -- canonical
  source_hash   TEXT    NOT NULL,       -- of the plan's kernels; "templates:<hash>": what version 0.1 knew in its place
  status        TEXT    NOT NULL,
  reason        TEXT    NOT NULL,
  rigor         INTEGER NOT NULL,       -- 0 estimate, 1 measure, 2 patient, 3 exhaustive
  samples_us    BLOB    NOT NULL,       -- doubles, little endian
  clocks_mhz    BLOB    NOT NULL,       -- 32-bit integers, little endian
  median_us     REAL    NOT NULL,
  p20_us        REAL    NOT NULL,
  p80_us        REAL    NOT NULL,
  predicted_us  REAL    NOT NULL,
  sm_clock_mhz  INTEGER NOT NULL,
  error_o       REAL,                   -- NULL: an output held NaN
  error_lse     REAL,
  registers     INTEGER NOT NULL,
  spill_bytes   INTEGER NOT NULL,
  shared_bytes  INTEGER NOT NULL,
  compile_ms    REAL    NOT NULL,
  created_at    TEXT    NOT NULL,       -- UTC, ISO 8601
  race          TEXT    NOT NULL,       -- UTC, when it began; '': not raced
  place         INTEGER NOT NULL,       -- in the race, from 1; 0: not raced
  sequence      INTEGER NOT NULL        -- what is newer has a greater one; 0: unknown
, wide_samples_us BLOB NOT NULL DEFAULT x'', wide_median_us REAL NOT NULL DEFAULT 0) STRICT;
INSERT INTO "measurement" VALUES(1,'07e5a261bc43a3bf459051b7b5008978',1,1,1,'sm80 q128 kv64 w4 st2','templates:0123456789abcdef','ok','',1,X'0000000000E0584000000000000059400000000000505940',X'450600005406000063060000',100.0,99.7,100.75,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-01-31T12:00:00.000001Z','',0,0,X'',0.0);
INSERT INTO "measurement" VALUES(2,'38455827178bb4da255bd68ef517d189',1,1,1,'sm80 q64 kv64 w4 st2','templates:0123456789abcdef','ok','',1,X'00000000008056400000000000C056400000000000605740',X'450600005406000063060000',91.0,90.4,92.5,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-01-31T12:00:01.000000Z','',0,0,X'',0.0);
INSERT INTO "measurement" VALUES(3,'bf2c73ac3198f51bf295192a787a95ce',1,1,1,'sm80 q128 kv128 w8 st2','templates:0123456789abcdef','ok','',2,X'55555555559557400000000000C057400000000000005840',X'450600005406000063060000',95.0,94.6,95.6,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-01-31T12:00:02.000000Z','',0,0,X'',0.0);
INSERT INTO "measurement" VALUES(4,'a107d83c3557158f3c5306a610a0f9db',1,1,1,'sm80 q64 kv128 w4 st2','templates:0123456789abcdef','wrong_result','o: element 17 is NaN; ''quoted'' -- and, "twice"',1,X'',X'',0.0,0.0,0.0,50.0,0,NULL,9.0e+999,168,0,65536,812.25,'2025-01-31T12:00:03.000000Z','',0,0,X'',0.0);
INSERT INTO "measurement" VALUES(5,'9ec4ef5bfd26dec366ed813acdc91f06',2,2,2,'sm80 q128 kv64 w4 st2','templates:0123456789abcdef','ok','',0,X'',X'',0.0,0.0,0.0,7.25,0,0.00213,1.5e-06,168,0,65536,812.25,'2025-01-31T12:00:04.000000Z','',0,0,X'',0.0);
INSERT INTO "measurement" VALUES(6,'321c90ea6e328721f100cb4d02ad8a5b',1,1,3,'sm80 q128 kv128 w8 st2','templates:0123456789abcdef','ok','',2,X'55555555559557400000000000C057400000000000005840',X'450600005406000063060000',95.0,94.6,95.6,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-02-01T12:00:01.000000Z','2025-02-01T12:00:00.000000Z',2,0,X'',0.0);
INSERT INTO "measurement" VALUES(7,'a2b5fa54284cd4c704ada9d1209234d2',1,1,3,'sm80 q64 kv64 w4 st2','templates:0123456789abcdef','ok','',2,X'00000000008056400000000000C056400000000000605740',X'450600005406000063060000',91.0,90.4,92.5,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-02-01T12:00:01.000001Z','2025-02-01T12:00:00.000000Z',1,0,X'',0.0);
INSERT INTO "measurement" VALUES(8,'c02a40e950cf981b9e3028a854b57ff6',1,1,1,'sm80 q128 kv64 w8 st2','templates:a2c9197d29983644','ok','',2,X'0000000000E0554000000000000056400000000000305640',X'450600005406000063060000',88.0,87.7,88.45,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-02-02T12:00:01.000000Z','',0,1,X'',0.0);
INSERT INTO "measurement" VALUES(9,'7ab83f3e5ffddbcb004bbd55b7e3cda4',1,1,1,'sm90 q128 kv128 st2','templates:e9cbd44099937a8d','ok','',2,X'000000000040464000000000008046400000000000E04640',X'450600005406000063060000',45.0,44.7,45.45,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-02-02T12:00:02.000000Z','',0,2,X'',0.0);
INSERT INTO "measurement" VALUES(10,'dba68374bdb70b5c446e711370a0bb48',1,1,1,'sm80 q64 kv64 w4 st2 cta2','templates:b0bcabef404e750d','ok','',2,X'0000000000C055400000000000E055400000000000105640',X'450600005406000063060000',87.5,87.2,87.95,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-02-02T12:00:03.000000Z','',0,3,X'',0.0);
INSERT INTO "measurement" VALUES(11,'042bcb787a6491d908ec1cb03d5993de',1,1,4,'sm90 q128 kv64 st3','5d0f6a3c9e7b1824','ok','',2,X'0000000000C0444000000000000045400000000000604540',X'450600005406000063060000',42.0,41.7,42.45,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-03-03T12:00:00.000001Z','2025-03-03T12:00:00.000000Z',1,5,X'',0.0);
INSERT INTO "measurement" VALUES(12,'5817f6d731606f736d2a588296fd1538',1,1,4,'sm80 q64 kv64 w4 st2','b7714f2a90c3de51','ok','',2,X'00000000008056400000000000C056400000000000605740',X'450600005406000063060000',91.0,90.4,92.5,50.0,1620,0.00213,1.5e-06,168,0,65536,812.25,'2025-03-03T12:00:00.000002Z','2025-03-03T12:00:00.000000Z',2,5,X'',0.0);
CREATE TABLE problem (
  id          INTEGER PRIMARY KEY,
  text        TEXT    NOT NULL UNIQUE,  -- canonical; the other columns repeat it for queries
  pass        TEXT    NOT NULL,
  dtype       TEXT    NOT NULL,
  batch       INTEGER NOT NULL,
  heads_q     INTEGER NOT NULL,
  heads_kv    INTEGER NOT NULL,
  seq_q       INTEGER NOT NULL,
  seq_kv      INTEGER NOT NULL,
  head_dim    INTEGER NOT NULL,
  mask        TEXT    NOT NULL,         -- none, causal
  mask_offset INTEGER NOT NULL,
  scale       REAL    NOT NULL,
  layout      TEXT    NOT NULL,
  alignment   INTEGER NOT NULL
, features TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "problem" VALUES(1,'forward bf16 b2 hq8 sq1024 d64 causal','forward','bf16',2,8,8,1024,1024,64,'causal',0,0.125,'bshd',16,'');
INSERT INTO "problem" VALUES(2,'forward fp16 b1 hq4 hkv2 sq77 skv99 d128 scale0.3','forward','fp16',1,4,2,77,99,128,'none',0,3.00000011920928955078e-01,'bshd',16,'');
CREATE TABLE provenance (
  id             INTEGER PRIMARY KEY,
  compiler       TEXT NOT NULL,
  driver         TEXT NOT NULL,
  protocol       TEXT NOT NULL,         -- how it was measured
  attune_version TEXT NOT NULL,
  UNIQUE (compiler, driver, protocol, attune_version)
) STRICT;
INSERT INTO "provenance" VALUES(1,'NVRTC 13.0 (test)','13.0','cold inputs','0.1.0');
INSERT INTO "provenance" VALUES(2,'NVRTC 12.4 (test)','13.0','cold inputs','0.1.0');
INSERT INTO "provenance" VALUES(3,'NVRTC 13.0 (test)','13.0','cold inputs; 2 configs in turns','0.1.0');
INSERT INTO "provenance" VALUES(4,'NVRTC 13.0 (test)','13.0','cold inputs; 2 configs alternately','0.1.0');
CREATE INDEX problem_by_class ON problem (pass, dtype, head_dim, mask, alignment);
CREATE INDEX measurement_by_question ON measurement (problem_id, device_id, config, rigor, id);
CREATE INDEX measurement_by_sequence ON measurement (sequence);
COMMIT;
