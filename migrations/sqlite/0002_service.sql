-- Leases, and the clock that they run on; the reasons are those of migrations/postgres.

ALTER TABLE liveness ADD COLUMN ttl INTEGER CONSTRAINT liveness_ttl_is_positive CHECK (ttl > 0);

ALTER TABLE liveness ADD COLUMN confirmed_service INTEGER NOT NULL DEFAULT 0;

-- One row: a file has no readers whose snapshots keep old versions of it in the way.
CREATE TABLE service (
    one INTEGER NOT NULL DEFAULT 1 CONSTRAINT service_pkey PRIMARY KEY CONSTRAINT service_is_one CHECK (one = 1),
    elapsed INTEGER NOT NULL,
    advanced_at INTEGER NOT NULL
) STRICT;

INSERT INTO service (elapsed, advanced_at)
VALUES (0, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));
