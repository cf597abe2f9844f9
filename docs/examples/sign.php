<?php
// Signs tokens for buyers with ES256, on the server on which they sign in:
//   openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out private.pem; composer require firebase/php-jwt
//   SIGNING_KEY=private.pem KEY_ID=2026-11 php sign.php keys          the JWK Set to publish
//   SIGNING_KEY=private.pem KEY_ID=2026-11 php sign.php token ann     a token for the buyer ann
declare(strict_types=1);

require (getenv('COMPOSER_VENDOR_DIR') ?: __DIR__ . '/vendor') . '/autoload.php';

use Firebase\JWT\JWT;

$pem = file_get_contents(getenv('SIGNING_KEY'));

/** Returns the JWK Set. While a key is replaced, publish the old one beside it. */
function publicKeys(string $pem): array
{
    $encoded = fn (string $number): string => JWT::urlsafeB64Encode(str_pad($number, 32, "\0", STR_PAD_LEFT));
    $point = openssl_pkey_get_details(openssl_pkey_get_private($pem))['ec'];
    return ['keys' => [[
        'kty' => 'EC', 'crv' => 'P-256', 'x' => $encoded($point['x']), 'y' => $encoded($point['y']),
        'kid' => getenv('KEY_ID'), 'alg' => 'ES256', 'use' => 'sig',
    ]]];
}

/** Returns a token for a buyer that has signed in, for a quarter of an hour. */
function token(string $buyer, string $pem): string
{
    return JWT::encode([
        'sub' => $buyer,
        'iss' => getenv('ISSUER') ?: 'https://shop.example',
        'aud' => getenv('AUDIENCE') ?: 'sluice',
        'iat' => time(),
        'exp' => time() + 15 * 60,
    ], $pem, 'ES256', getenv('KEY_ID'));
}

echo $argv[1] === 'keys' ? json_encode(publicKeys($pem)) : token($argv[2], $pem), "\n";
