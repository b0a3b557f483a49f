-- Leases, and the clock that they run on.

-- How long one confirmation of an agent holds, in microseconds (NULL: it was registered without a lease), and the
-- service clock at the last confirmation.
ALTER TABLE liveness
    ADD COLUMN ttl bigint,
    ADD COLUMN confirmed_service bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT liveness_ttl_is_positive CHECK (ttl > 0);

-- The service clock: how long the registry was up, in microseconds, and when by the server's clock that was read.
-- Every node adds what passed since the last reading, up to a bound, so that it stands still while no node is up.
-- Readings are inserted and the last one counts: a row that is updated every second would rot under a long
-- snapshot, and the head statement reads it ten times a second. Old readings are removed now and then.
CREATE TABLE service (
    elapsed bigint NOT NULL,
    advanced_at bigint NOT NULL,
    CONSTRAINT service_pkey PRIMARY KEY (elapsed)
);

INSERT INTO service (elapsed, advanced_at)
VALUES (0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
