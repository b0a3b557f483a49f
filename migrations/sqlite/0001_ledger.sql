-- The ledger: what is remembered. Forward only; a released file is never edited (its checksum is kept).
-- The tables and their reasons are those of migrations/postgres; text is compared byte by byte here anyway.

CREATE TABLE ledger (
    one INTEGER NOT NULL DEFAULT 1 CONSTRAINT ledger_pkey PRIMARY KEY CONSTRAINT ledger_is_one CHECK (one = 1),
    id TEXT NOT NULL CONSTRAINT ledger_id_is_a_uuid CHECK (length(id) = 36),
    created_at INTEGER NOT NULL
) STRICT;

-- A random UUID (version 4).
INSERT INTO ledger (id, created_at)
SELECT
    lower(
        substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-4' || substr(h, 14, 3) || '-'
        || substr('89ab', 1 + (unicode(substr(h, 17, 1)) % 4), 1) || substr(h, 18, 3) || '-' || substr(h, 21, 12)
    ),
    CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)
FROM (SELECT hex(randomblob(16)) AS h);

CREATE TABLE entry (
    seq INTEGER NOT NULL CONSTRAINT entry_pkey PRIMARY KEY CONSTRAINT entry_seq_from_one CHECK (seq >= 1),
    digest BLOB NOT NULL CONSTRAINT entry_digest_is_sha256 CHECK (length(digest) = 32),
    body_digest BLOB NOT NULL CONSTRAINT entry_body_digest_is_sha256 CHECK (length(body_digest) = 32),
    body TEXT NOT NULL
) STRICT;

CREATE TABLE revision (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL CONSTRAINT revision_from_one CHECK (revision >= 1),
    seq INTEGER NOT NULL CONSTRAINT revision_seq_fkey REFERENCES entry (seq),
    kind TEXT NOT NULL CONSTRAINT revision_kind_is_known CHECK (kind IN ('card', 'tombstone')),
    raw_digest BLOB,
    content_digest BLOB,
    change TEXT,
    card BLOB,
    CONSTRAINT revision_pkey PRIMARY KEY (namespace, name, revision),
    CONSTRAINT revision_seq_key UNIQUE (seq),
    CONSTRAINT revision_card_has_digests CHECK (
        (kind = 'card') = (raw_digest IS NOT NULL) AND (kind = 'card') = (content_digest IS NOT NULL)
    ),
    CONSTRAINT revision_tombstone_has_no_card CHECK (kind = 'card' OR card IS NULL)
) STRICT;

CREATE TABLE request (
    principal TEXT NOT NULL,
    request_id TEXT NOT NULL,
    names BLOB NOT NULL,
    outcome TEXT NOT NULL
        CONSTRAINT request_outcome_is_known CHECK (outcome IN ('created', 'updated', 'unchanged', 'retired')),
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    at INTEGER NOT NULL,
    CONSTRAINT request_pkey PRIMARY KEY (principal, request_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX request_at_idx ON request (at);

CREATE TABLE liveness (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    origin_confirmed_at INTEGER NOT NULL,
    -- A JSON array of microseconds since the Unix epoch.
    registers TEXT NOT NULL,
    release TEXT,
    CONSTRAINT liveness_pkey PRIMARY KEY (namespace, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX liveness_origin_confirmed_at_idx ON liveness (origin_confirmed_at);
