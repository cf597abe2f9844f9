-- +goose Up

-- Secrets of endpoints that were rotated and also sign, until their time.
CREATE TABLE webhook_old_secrets (
    endpoint text COLLATE "C" NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    secret   text NOT NULL,
    until    timestamptz NOT NULL,
    PRIMARY KEY (endpoint, secret)
);
INSERT INTO webhook_old_secrets (endpoint, secret, until)
    SELECT id, old_secret, old_until FROM webhook_endpoints WHERE old_until > now();
ALTER TABLE webhook_endpoints DROP COLUMN old_secret, DROP COLUMN old_until;
