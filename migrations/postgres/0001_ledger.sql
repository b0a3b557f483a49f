-- The ledger: what is remembered. Forward only; a released file is never edited (its checksum is kept).
-- Constraint names are API: the program tells errors apart by them.
--
-- Names and ids are compared and ordered byte by byte (COLLATE "C"), as the program orders them, and so that
-- no index depends on a collation library that an upgrade of the operating system may replace.
--
-- There is no table of heads. A row that every commit updates rots as soon as one long snapshot keeps its dead
-- versions alive (measured: reads 0.07 to 1.3 ms, updates 5,900 to 750 a second). The head is the last entry by
-- primary key, an agent's newest revision is the last one by primary key; both are one step down an index.

-- Which ledger this is: one row, made once.
CREATE TABLE ledger (
    one boolean NOT NULL DEFAULT true,
    id text NOT NULL,
    created_at bigint NOT NULL,
    CONSTRAINT ledger_pkey PRIMARY KEY (one),
    CONSTRAINT ledger_is_one CHECK (one),
    CONSTRAINT ledger_id_is_a_uuid CHECK (id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')
);

INSERT INTO ledger (id, created_at)
VALUES (gen_random_uuid()::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);

-- The sequence of entries. Rows are inserted and never changed.
CREATE TABLE entry (
    seq bigint NOT NULL,
    digest bytea NOT NULL,
    body_digest bytea NOT NULL,
    body text NOT NULL,
    CONSTRAINT entry_pkey PRIMARY KEY (seq),
    CONSTRAINT entry_seq_from_one CHECK (seq >= 1),
    CONSTRAINT entry_digest_is_sha256 CHECK (octet_length(digest) = 32),
    CONSTRAINT entry_body_digest_is_sha256 CHECK (octet_length(body_digest) = 32)
);

-- The states of agents' cards. What an entry's body says (digests, generation, version, who and when) is read
-- from the body: it is hashed, so it cannot disagree with itself, and it is JSON, so it can hold the U+0000
-- that a `text` column refuses. Here is what the lock compares, and what bodies do not hold.
CREATE TABLE revision (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    seq bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    raw_digest bytea,
    content_digest bytea,
    change text,
    card bytea,
    CONSTRAINT revision_pkey PRIMARY KEY (namespace, name, revision),
    CONSTRAINT revision_seq_key UNIQUE (seq),
    CONSTRAINT revision_seq_fkey FOREIGN KEY (seq) REFERENCES entry (seq),
    CONSTRAINT revision_from_one CHECK (revision >= 1),
    CONSTRAINT revision_kind_is_known CHECK (kind IN ('card', 'tombstone')),
    CONSTRAINT revision_card_has_digests CHECK (
        (kind = 'card') = (raw_digest IS NOT NULL) AND (kind = 'card') = (content_digest IS NOT NULL)
    ),
    CONSTRAINT revision_tombstone_has_no_card CHECK (kind = 'card' OR card IS NULL)
);

-- Cards are written while the ledger's lock is held, so no time is spent there on compressing them, and their
-- length is known without reading them.
ALTER TABLE revision ALTER COLUMN card SET STORAGE EXTERNAL;

-- Request ids and what they led to, for some days.
CREATE TABLE request (
    principal text COLLATE "C" NOT NULL,
    request_id text COLLATE "C" NOT NULL,
    names bytea NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    at bigint NOT NULL,
    CONSTRAINT request_pkey PRIMARY KEY (principal, request_id),
    CONSTRAINT request_outcome_is_known CHECK (outcome IN ('created', 'updated', 'unchanged', 'retired'))
);

CREATE INDEX request_at_idx ON request (at);

-- What is known of an agent outside the ledger: one narrow row each, replaced at every register. Updates move
-- an indexed column and so cannot be HOT; the dead rows are cleaned early instead.
CREATE TABLE liveness (
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    origin_confirmed_at bigint NOT NULL,
    registers bigint[] NOT NULL,
    release text,
    CONSTRAINT liveness_pkey PRIMARY KEY (namespace, name)
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05
);

CREATE INDEX liveness_origin_confirmed_at_idx ON liveness (origin_confirmed_at);
