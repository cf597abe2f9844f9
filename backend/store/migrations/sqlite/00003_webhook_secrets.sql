-- +goose Up

CREATE TABLE webhook_old_secrets (
    endpoint text NOT NULL REFERENCES webhook_endpoints (id) ON DELETE CASCADE,
    secret   text NOT NULL,
    until    integer NOT NULL,
    PRIMARY KEY (endpoint, secret)
) WITHOUT ROWID;
INSERT INTO webhook_old_secrets (endpoint, secret, until)
    SELECT id, old_secret, old_until FROM webhook_endpoints WHERE old_until IS NOT NULL;
ALTER TABLE webhook_endpoints DROP COLUMN old_secret;
ALTER TABLE webhook_endpoints DROP COLUMN old_until;
