-- Replicas: how far each node and edge has come, as it said last. Beside the ledger: nothing is judged by it.
--
-- One narrow row each, replaced at every report. The index on `reported_at` makes updates non-HOT; it finds
-- those who are not silent, and those to be forgotten, without reading the rest.
CREATE TABLE replica (
    replica text COLLATE "C" NOT NULL,
    -- The first of the report that brought the row: itself, or a node that it hangs off.
    reporter text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    -- The eight bytes of a position that tell histories apart, as a number.
    tag bigint NOT NULL,
    staleness_us bigint,
    hops bigint NOT NULL,
    version text COLLATE "C" NOT NULL,
    via text COLLATE "C",
    -- Replicas below it that its report did not name, none of them below this position.
    omitted bigint,
    omitted_seq bigint,
    omitted_tag bigint,
    reported_at bigint NOT NULL,
    CONSTRAINT replica_pkey PRIMARY KEY (replica),
    CONSTRAINT replica_omitted_has_a_position CHECK (
        (omitted IS NULL) = (omitted_seq IS NULL) AND (omitted IS NULL) = (omitted_tag IS NULL)
    )
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX replica_reported_at_idx ON replica (reported_at);
