-- Replicas: how far each node and edge has come, as it said last.
-- The table and its reasons are those of migrations/postgres.

CREATE TABLE replica (
    replica TEXT NOT NULL,
    reporter TEXT NOT NULL,
    role TEXT NOT NULL,
    seq INTEGER NOT NULL,
    tag INTEGER NOT NULL,
    staleness_us INTEGER,
    hops INTEGER NOT NULL,
    version TEXT NOT NULL,
    via TEXT,
    omitted INTEGER,
    omitted_seq INTEGER,
    omitted_tag INTEGER,
    reported_at INTEGER NOT NULL,
    CONSTRAINT replica_pkey PRIMARY KEY (replica),
    CONSTRAINT replica_omitted_has_a_position CHECK (
        (omitted IS NULL) = (omitted_seq IS NULL) AND (omitted IS NULL) = (omitted_tag IS NULL)
    )
) STRICT, WITHOUT ROWID;

CREATE INDEX replica_reported_at_idx ON replica (reported_at);
