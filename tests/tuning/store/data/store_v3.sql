-- Tuning database of version 3, as that version wrote it.
PRAGMA application_id = 1396789844;
PRAGMA user_version = 3;
BEGIN TRANSACTION;
CREATE TABLE measurements (
            task TEXT NOT NULL,
            variant TEXT NOT NULL,
            source TEXT NOT NULL,
            hardware TEXT NOT NULL,
            threads INTEGER NOT NULL,
            runtime TEXT NOT NULL,
            backend TEXT NOT NULL,
            status TEXT NOT NULL,
            samples BLOB NOT NULL,           -- seconds, little-endian float64
            baseline_samples BLOB NOT NULL,
            error REAL,
            message TEXT NOT NULL,
            created REAL NOT NULL,           -- seconds since the epoch
            packed_bytes INTEGER NOT NULL, facts TEXT NOT NULL DEFAULT '', foreign_load REAL NOT NULL DEFAULT 0.0,
            PRIMARY KEY (task, variant, source, hardware, threads, runtime, backend)
        ) WITHOUT ROWID
        ;
INSERT INTO "measurements" VALUES('task','cpu:f32/conv2d.nhwc{tile=4}','source','machine',1,'runtime 1','cpu/host','ok',X'9A9999999999B93F59F3F8C21F6EA501182D4454FB2109400100000000000000',X'555555555555D53F',1.0e-07,'',1000.5,1099511627776,'',0.0);
INSERT INTO "measurements" VALUES('task','cpu:f32/conv2d.winograd{tile=6}','source','machine',1,'runtime 1','cpu/host','crashed',X'',X'',NULL,'SIGSEGV
\0\udcff ''quoted'' ☃',2000.0,0,'',0.0);
COMMIT;
