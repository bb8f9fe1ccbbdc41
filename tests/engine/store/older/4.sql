PRAGMA application_id = 1131375719;
PRAGMA user_version = 4;
BEGIN TRANSACTION;
CREATE TABLE attempt (
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads INTEGER NOT NULL, launch TEXT NOT NULL,
        timing TEXT NOT NULL,
        machine TEXT NOT NULL, pid INTEGER NOT NULL, started REAL NOT NULL,
        begun INTEGER NOT NULL, seen REAL NOT NULL,
        PRIMARY KEY (structural_hash, target, fingerprint, host, threads, launch, timing, machine, pid, started)
    ) WITHOUT ROWID;
INSERT INTO "attempt" VALUES('h','t','f 1.0','cpu',2,'eager','blocks 2','vm',18206,1795739399.68,1,1.79573940054114747051e+09);
CREATE TABLE blob (
        toolchain TEXT NOT NULL, fingerprint TEXT NOT NULL, key TEXT NOT NULL,
        checksum TEXT NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (toolchain, fingerprint, key)
    );
INSERT INTO "blob" VALUES('t','f 1.0','k','3673014e72b67383be302485694555a57ad393afdebaed6ded110a775bd0556d',X'636163686564');
CREATE TABLE document (
        kind TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    );
INSERT INTO "document" VALUES('note','n',1,'{"x":1}');
CREATE TABLE record (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        content_id TEXT NOT NULL UNIQUE,
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads INTEGER NOT NULL, launch TEXT NOT NULL,
        timing TEXT NOT NULL,
        purpose TEXT NOT NULL, outcome TEXT NOT NULL,
        body TEXT NOT NULL
    );
INSERT INTO "record" VALUES(1,'9cad5f1de61e55402309d0f90e62006870e295a4404fbb8e6dfe2daccdd9b889','h','t','f 1.0','cpu',2,'eager','blocks 2','select','measured','{"blocks":[],"created":"2026-11-20T00:00:00+00:00","error":null,"extra":{"a":[1]},"key":{"fingerprint":"f 1.0","host":"cpu","launch":"eager","structural_hash":"h","target":"t","threads":2,"timing":"blocks 2"},"outcome":"measured","purpose":"select","reason":"","samples_us":[10.0,11.0],"stage":"","variant":"v","warmup_runs":3}');
INSERT INTO "record" VALUES(2,'7a6e061e01f03708f1cf07b9d7a696924b3253ef4caf7c053a6eb2ee885f2c97','h','t','f 1.0','cpu',2,'eager','blocks 2','confirm','measured','{"blocks":[],"created":"2026-11-20T00:00:00+00:00","error":null,"extra":{"a":[1]},"key":{"fingerprint":"f 1.0","host":"cpu","launch":"eager","structural_hash":"h","target":"t","threads":2,"timing":"blocks 2"},"outcome":"measured","purpose":"confirm","reason":"","samples_us":[11.0,12.0],"stage":"","variant":"v","warmup_runs":3}');
INSERT INTO "record" VALUES(3,'4129a95b36ff473fdf3a2e21fd2a085ba44eccf5310683e7409ade0fadfb8055','h','t','f 1.0','cpu',2,'eager','blocks 2','select','refused','{"blocks":[],"created":"2026-11-20T00:00:00+00:00","error":null,"extra":{},"key":{"fingerprint":"f 1.0","host":"cpu","launch":"eager","structural_hash":"h","target":"t","threads":2,"timing":"blocks 2"},"outcome":"refused","purpose":"select","reason":"no","samples_us":[],"stage":"lower","variant":"","warmup_runs":0}');
CREATE INDEX record_by_key ON record
        (structural_hash, target, fingerprint, host, threads, launch, timing, purpose, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('record',3);
COMMIT;
