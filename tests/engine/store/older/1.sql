PRAGMA application_id = 1131375719;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE attempt (
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads INTEGER NOT NULL, launch TEXT NOT NULL,
        begun INTEGER NOT NULL,
        PRIMARY KEY (structural_hash, target, fingerprint, host, threads, launch)
    ) WITHOUT ROWID;
INSERT INTO "attempt" VALUES('h','t','f 1.0','cpu',2,'eager',1);
CREATE TABLE blob (
        toolchain TEXT NOT NULL, fingerprint TEXT NOT NULL, key TEXT NOT NULL,
        checksum TEXT NOT NULL, data BLOB NOT NULL,
        PRIMARY KEY (toolchain, fingerprint, key)
    );
INSERT INTO "blob" VALUES('t','f 1.0','k','3673014e72b67383be302485694555a57ad393afdebaed6ded110a775bd0556d',X'636163686564');
CREATE TABLE plan (name TEXT PRIMARY KEY, body TEXT NOT NULL);
INSERT INTO "plan" VALUES('p','{"kernels":[]}');
CREATE TABLE record (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        content_id TEXT NOT NULL UNIQUE,
        structural_hash TEXT NOT NULL, target TEXT NOT NULL, fingerprint TEXT NOT NULL,
        host TEXT NOT NULL, threads INTEGER NOT NULL, launch TEXT NOT NULL,
        purpose TEXT NOT NULL, outcome TEXT NOT NULL,
        body TEXT NOT NULL
    );
INSERT INTO "record" VALUES(1,'62ddad9ba69afd289deba984b242c1ae3906022a46dc04648c8c3fcc5bbc940f','h','t','f 1.0','cpu',2,'eager','select','measured','{"created":"2026-11-20T00:00:00+00:00","error":null,"extra":{"a":[1]},"key":{"fingerprint":"f 1.0","host":"cpu","launch":"eager","structural_hash":"h","target":"t","threads":2},"outcome":"measured","purpose":"select","reason":"","samples_us":[10.0,11.0],"stage":"","variant":"v","warmup_runs":3}');
INSERT INTO "record" VALUES(2,'d3fa56ebc703ff5cf2d7c6fa832b6a49e6a3e4dc5a6379c91b714ecb8f969027','h','t','f 1.0','cpu',2,'eager','confirm','measured','{"created":"2026-11-20T00:00:00+00:00","error":null,"extra":{"a":[1]},"key":{"fingerprint":"f 1.0","host":"cpu","launch":"eager","structural_hash":"h","target":"t","threads":2},"outcome":"measured","purpose":"confirm","reason":"","samples_us":[11.0,12.0],"stage":"","variant":"v","warmup_runs":3}');
INSERT INTO "record" VALUES(3,'76159e4c85e5ad8192d76332fa757ee2e51abdea38baa3ed98da7685006637ae','h','t','f 1.0','cpu',2,'eager','select','refused','{"created":"2026-11-20T00:00:00+00:00","error":null,"extra":{},"key":{"fingerprint":"f 1.0","host":"cpu","launch":"eager","structural_hash":"h","target":"t","threads":2},"outcome":"refused","purpose":"select","reason":"no","samples_us":[],"stage":"lower","variant":"","warmup_runs":0}');
CREATE INDEX record_by_key ON record
        (structural_hash, target, fingerprint, host, threads, launch, purpose, id);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('record',3);
COMMIT;
