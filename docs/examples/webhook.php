<?php
// Receives webhooks: WEBHOOK_SECRET=whsec_... php -S 127.0.0.1:9000 webhook.php
declare(strict_types=1);

/** Reports whether the signature is valid. The body must be the unmodified bytes of the request. */
function verify(string $secret, string $id, string $time, string $signatures, string $body): bool
{
    if ($id === '' || !ctype_digit($time) || abs(time() - (int) $time) > 300) {
        return false;
    }
    $key = base64_decode(substr($secret, strlen('whsec_')), true);
    $want = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$time.$body", $key, true));
    foreach (explode(' ', $signatures) as $signature) {
        if (hash_equals($want, $signature)) {
            return true;
        }
    }
    return false;
}

$secret = (string) getenv('WEBHOOK_SECRET');
if (!preg_match('/^whsec_.{32}/', $secret)) { // with an empty secret, any sender can sign
    http_response_code(500);
    error_log('usage: WEBHOOK_SECRET=whsec_... php -S 127.0.0.1:9000 webhook.php');
    return;
}
$body = file_get_contents('php://input');
$id = $_SERVER['HTTP_WEBHOOK_ID'] ?? '';
if (!verify($secret, $id, $_SERVER['HTTP_WEBHOOK_TIMESTAMP'] ?? '', $_SERVER['HTTP_WEBHOOK_SIGNATURE'] ?? '', $body)) {
    http_response_code(401);
    return;
}
// Use a database, and the transaction that processes the webhook. Here each id is a file, which is locked meanwhile.
try {
    $marker = fopen(sys_get_temp_dir() . '/webhook-' . hash('sha256', $id), 'c+');
    flock($marker, LOCK_EX);
    if (fgets($marker) === false) {
        file_put_contents('php://stdout', json_decode($body, true, flags: JSON_THROW_ON_ERROR)['type'] . " $id\n"); // process it here
        fwrite($marker, 'processed'); // afterwards: what fails is sent again
    }
    http_response_code(204);
} catch (Throwable $error) {
    error_log("$id: " . $error->getMessage());
    http_response_code(500); // with display_errors, PHP would answer 200
}
