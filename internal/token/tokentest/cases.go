package tokentest

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	_ "crypto/sha512" // for crypto.SHA384 and crypto.SHA512
	"crypto/subtle"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"sluice/internal/strictjson"
	"sluice/internal/token"
)

// Case is a token and the expected result of a verifier with the keys of an Issuer.
type Case struct {
	Name, Token string
	Subject     string // "" if the token is invalid
}

// InHeader reports whether the token can be sent in an HTTP header.
func (c Case) InHeader() bool {
	return c.Token != "" && !strings.ContainsFunc(c.Token, func(r rune) bool { return r < ' ' || r > '~' }) &&
		strings.TrimSpace(c.Token) == c.Token
}

const (
	year2100 = "4102444800"
	plain    = `{"alg":"HS256","typ":"JWT"}`
)

// Cases returns valid tokens, and tokens that are invalid for a single reason.
func (w *Issuer) Cases() []Case {
	var cases []Case
	for _, group := range [][]Case{w.good(), w.headers(), w.confused(), w.claims(), w.shapes(), w.signatures()} {
		cases = append(cases, group...)
	}
	return cases
}

func claimsOf(sub string) string { return `{"sub":"` + sub + `","exp":` + year2100 + `}` }

func header(alg, kid string) string { return `{"alg":"` + alg + `","typ":"JWT","kid":"` + kid + `"}` }

// textOfAnn returns the signed part of a token of ann for a key.
func textOfAnn(alg, kid string) string { return Segments(header(alg, kid), claimsOf("ann")) }

func (w *Issuer) hs(header, claims string) string {
	return HS(Segments(header, claims), []byte(w.Secret))
}

// refused returns cases of invalid tokens.
func refused(tokens map[string]string) []Case {
	var cases []Case
	for name, raw := range tokens {
		cases = append(cases, Case{Name: name, Token: raw})
	}
	return cases
}

// good returns valid tokens.
func (w *Issuer) good() []Case {
	long := strings.Repeat("d", token.MaxSubject)
	cases := []Case{
		{"the P-256 key, the larger s", w.other(w.ES(textOfAnn("ES256", Curved))), "ann"},
		{"a name of 255 bytes", w.hs(plain, claimsOf(long)), long},
		{"a name in NFD stays in NFD", w.hs(plain, claimsOf("cye\u0301")), "cye\u0301"},
		{"a name with the sign for what cannot be read", w.hs(plain, claimsOf("a\ufffdb")), "a\ufffdb"},
	}
	for name, row := range readTable(validTable) {
		columns := strings.Split(row, "\t")
		header := must(strictjson.Object([]byte(columns[0])))
		alg, _ := header["alg"].(string)
		kid, _ := header["kid"].(string)
		cases = append(cases, Case{name, w.Sign(alg, kid, Segments(columns[0], columns[1])), columns[2]})
	}
	return cases
}

// validTable lists tokens that a verifier accepts. headerTable and claimsTable list texts that it rejects: a name, a
// tab and the JSON text.
//
//go:embed testdata/valid.txt
var validTable string

//go:embed testdata/headers.txt
var headerTable string

//go:embed testdata/claims.txt
var claimsTable string

func readTable(table string) map[string]string {
	texts := map[string]string{}
	for line := range strings.Lines(table) {
		if name, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			texts[name] = text
		}
	}
	return texts
}

// headers returns tokens with an invalid header. All are signed with the secret, or with the key that they name.
func (w *Issuer) headers() []Case {
	headers := readTable(headerTable)
	maps.Copy(headers, map[string]string{
		"header empty":             "",
		"header nested 1,000 deep": `{"alg":"HS256","a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`,
		"kid huge":                 `{"alg":"HS256","kid":"` + strings.Repeat("k", 2000) + `"}`,
		"kid of 256 bytes":         `{"alg":"HS256","kid":"` + strings.Repeat("k", 256) + `"}`,
		"kid not UTF-8":            "{\"alg\":\"HS256\",\"kid\":\"\xff\"}",
	})
	for name, h := range headers {
		headers[name] = w.hs(h, claimsOf("ann"))
	}
	return refused(headers)
}

// confused returns tokens with a valid signature of a key or an algorithm that their header must not select.
func (w *Issuer) confused() []Case {
	claims := claimsOf("ann")
	pkix := must(x509.MarshalPKIXPublicKey(&w.RSA.PublicKey))
	edPKIX := must(x509.MarshalPKIXPublicKey(w.Ed25519.Public()))
	ecPKIX := must(x509.MarshalPKIXPublicKey(w.P256.Public()))
	pkcs1 := x509.MarshalPKCS1PublicKey(&w.RSA.PublicKey)
	tokens := map[string]string{
		"kid of another secret":        HS(textOfAnn("HS256", Second), w.Secrets[First]),
		"kid, signed without":          HS(textOfAnn("HS256", First), []byte(w.Secret)),
		"no kid, signed with one":      HS(Segments(plain, claims), w.Secrets[First]),
		"kid in capitals":              w.Ed(textOfAnn("EdDSA", strings.ToUpper(Edward))),
		"EdDSA without a kid":          w.Ed(Segments(`{"alg":"EdDSA"}`, claims)),
		"RS256 without a kid":          w.RS(Segments(`{"alg":"RS256"}`, claims)),
		"EdDSA, a secret's kid":        w.Ed(textOfAnn("EdDSA", First)),
		"EdDSA, an RSA key's kid":      w.Ed(textOfAnn("EdDSA", Rivest)),
		"alg Ed448":                    w.Ed(textOfAnn("Ed448", Edward)),
		"PS256 of the key for RS256":   pss(w.RSA, crypto.SHA256, 32, textOfAnn("PS256", Rivest)),
		"PS256 labeled RS256":          pss(w.RSA, crypto.SHA256, 32, textOfAnn("RS256", Rivest)),
		"PS256 without a salt":         unsalted(w.PSS, textOfAnn("PS256", Salted)),
		"PS256 with a short salt":      pss(w.PSS, crypto.SHA256, 20, textOfAnn("PS256", Salted)),
		"PS256 with a long salt":       pss(w.PSS, crypto.SHA256, 33, textOfAnn("PS256", Salted)),
		"PS256 with the longest salt":  pss(w.PSS, crypto.SHA256, rsa.PSSSaltLengthAuto, textOfAnn("PS256", Salted)),
		"PS384 labeled PS256":          pss(w.PSS, crypto.SHA384, 48, textOfAnn("PS256", Salted)),
		"PS384":                        pss(w.PSS, crypto.SHA384, 48, textOfAnn("PS384", Salted)),
		"RS256 of the key for PS256":   pkcs1v15(w.PSS, crypto.SHA256, textOfAnn("RS256", Salted)),
		"RS256 labeled PS256":          pkcs1v15(w.PSS, crypto.SHA256, textOfAnn("PS256", Salted)),
		"ES256 without a kid":          w.ES(Segments(`{"alg":"ES256"}`, claims)),
		"ES256, an RSA key's kid":      w.ES(textOfAnn("ES256", Rivest)),
		"ES256, an Ed25519 key's kid":  w.ES(textOfAnn("ES256", Edward)),
		"EdDSA, a P-256 key's kid":     w.Ed(textOfAnn("EdDSA", Curved)),
		"ES256 labeled EdDSA":          w.ES(textOfAnn("EdDSA", Edward)),
		"EdDSA labeled ES256":          w.Ed(textOfAnn("ES256", Curved)),
		"ES256 that is an HMAC":        HS(textOfAnn("ES256", Curved), []byte(w.Secret)),
		"ES384":                        w.ES(textOfAnn("ES384", Curved)),
		"ES256K":                       w.ES(textOfAnn("ES256K", Curved)),
		"ES256 of another curve's key": es(newKey(elliptic.P384()), textOfAnn("ES256", Curved)),
		"ES256 of another key":         es(newKey(elliptic.P256()), textOfAnn("ES256", Curved)),
		"ES256 in ASN.1":               asn1(w.P256, textOfAnn("ES256", Curved)),
		"RS512 labeled RS256":          pkcs1v15(w.RSA, crypto.SHA512, textOfAnn("RS256", Rivest)),
		"RS512":                        pkcs1v15(w.RSA, crypto.SHA512, textOfAnn("RS512", Rivest)),
		"RS256 that is an HMAC":        HS(textOfAnn("RS256", Rivest), []byte(w.Secret)),
		"EdDSA that is an HMAC":        HS(textOfAnn("EdDSA", Edward), []byte(w.Secret)),
		"HS256 that is RS256":          w.RS(Segments(plain, claims)),
		"HS256 that is EdDSA":          w.Ed(Segments(plain, claims)),
		"JWK of the attacker's": HS(Segments(`{"alg":"HS256","jwk":{"kty":"oct",`+
			`"k":"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE"}}`, claims), []byte(strings.Repeat("a", 32))),
	}
	for name, secret := range map[string][]byte{
		"RSA PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pkix}), "RSA DER": pkix, "RSA PKCS 1 DER": pkcs1,
		"RSA PKCS 1 PEM": pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: pkcs1}), "modulus": w.RSA.N.Bytes(),
		"modulus in base64url": []byte(encoded(w.RSA.N.Bytes())),
		"Ed25519 PEM":          pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: edPKIX}), "Ed25519 DER": edPKIX,
		"Ed25519 bytes": w.Ed25519.Public().(ed25519.PublicKey),
		"P-256 PEM":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: ecPKIX}), "P-256 DER": ecPKIX,
		"P-256 point":      must(w.P256.PublicKey.Bytes()),
		"the file of keys": w.Keys, "nothing": nil, "zeros": make([]byte, 32),
	} {
		for _, kid := range []string{Rivest, Edward, Curved, First} {
			tokens["secret: "+name+", kid "+kid] = HS(textOfAnn("HS256", kid), secret)
		}
		tokens["secret: "+name] = HS(Segments(plain, claims), secret)
	}
	return refused(tokens)
}

// unsalted is RSASSA-PSS with SHA-256 and an empty salt (RFC 8017, 9.1.1), which crypto/rsa does not offer.
func unsalted(key *rsa.PrivateKey, text string) string {
	size := key.Size()
	h := sha256.Sum256(append(make([]byte, 8), digest(crypto.SHA256, text)...))
	db := make([]byte, size-sha256.Size-1)
	db[len(db)-1] = 1
	for i := 0; i*sha256.Size < len(db); i++ {
		mask := sha256.Sum256(binary.BigEndian.AppendUint32(h[:], uint32(i)))
		subtle.XORBytes(db[i*sha256.Size:], db[i*sha256.Size:], mask[:])
	}
	db[0] &= 0x7f
	m := new(big.Int).SetBytes(slices.Concat(db, h[:], []byte{0xbc}))
	return signed(text, m.Exp(m, key.D, key.N).FillBytes(make([]byte, size)))
}

// other returns a token of the P-256 key with the second of the two valid values of s.
func (w *Issuer) other(raw string) string {
	return resigned(raw, func(signature []byte) []byte {
		s := new(big.Int).SetBytes(signature[32:])
		s.Sub(elliptic.P256().Params().N, s).FillBytes(signature[32:])
		return signature
	})
}

// resigned returns a token with a changed signature.
func resigned(raw string, change func([]byte) []byte) string {
	at := strings.LastIndexByte(raw, '.')
	return signed(raw[:at], change(must(B64.DecodeString(raw[at+1:]))))
}

// claims returns tokens with invalid claims and a valid signature.
func (w *Issuer) claims() []Case {
	texts := readTable(claimsTable)
	now := time.Now().Unix()
	other := func(value string) string { return `{"sub":"ann","exp":` + year2100 + `,"a":` + value + `}` }
	maps.Copy(texts, map[string]string{
		"claims nothing":                "",
		"a byte order mark":             "\ufeff" + claimsOf("ann"),
		"a token within":                w.hs(plain, claimsOf("ann")),
		"expired":                       fmt.Sprintf(`{"sub":"ann","exp":%d}`, now-1),
		"expires now":                   fmt.Sprintf(`{"sub":"ann","exp":%d}`, now),
		"nbf a moment ahead":            fmt.Sprintf(`{"sub":"ann","nbf":%d,"exp":`+year2100+`}`, now+600),
		"sub not UTF-8":                 claimsOf("ann\xff"),
		"sub overlong":                  claimsOf("ann\xc0\xaf"),
		"sub a raw surrogate":           claimsOf("\xed\xa0\x80"),
		"sub with a raw zero":           claimsOf("ann\x00"),
		"sub with DEL":                  claimsOf("ann\x7f"),
		"sub of 256 bytes":              claimsOf(strings.Repeat("a", 256)),
		"sub of 2 kB":                   claimsOf(strings.Repeat("a", 2<<10)),
		"sub of 8 kB":                   claimsOf(strings.Repeat("a", 8<<10)),
		"nested 1,000 deep":             other(strings.Repeat("[", 1000) + strings.Repeat("]", 1000)),
		"nested 1,000 deep, unfinished": strings.TrimSuffix(other(strings.Repeat("[", 1000)), "}"),
		"nested 10,000 deep":            other(strings.Repeat("[", 10000) + strings.Repeat("]", 10000)),
		"objects 400 deep":              other(strings.Repeat(`{"a":`, 400) + `1` + strings.Repeat("}", 400)),
		"longer than 4096 bytes":        other(`"` + strings.Repeat("a", 4000) + `"`),
	})
	for name, claims := range texts {
		texts[name] = w.hs(plain, claims)
	}
	return refused(texts)
}

// shapes returns tokens with an invalid encoding.
func (w *Issuer) shapes() []Case {
	good := w.hs(plain, claimsOf("ann"))
	parts := strings.Split(good, ".")
	head, claims, signature := parts[0], parts[1], parts[2]
	bySecret := func(text string) string { return HS(text, []byte(w.Secret)) }
	standard := base64.RawStdEncoding.EncodeToString([]byte(claimsOf("???>>>~~")))
	return refused(map[string]string{
		"empty":                     "",
		"a word":                    "nonsense",
		"one dot":                   ".",
		"dots":                      "..",
		"many dots":                 strings.Repeat(".", 4000),
		"two segments":              head + "." + claims,
		"three and a half segments": good + ".",
		"four segments":             good + "." + signature,
		"five segments, as JWE has": good + "." + signature + "." + signature,
		"an empty one in front":     "." + good,
		"no signature":              head + "." + claims + ".",
		"no claims":                 bySecret(head + "."),
		"no header":                 bySecret("." + claims),
		"JWE": Segments(`{"alg":"dir","enc":"A256GCM"}`, "") + encoded(make([]byte, 12)) + "." + claims +
			"." + signature[:22],
		"none, unsigned":                  Segments(`{"alg":"none","typ":"JWT"}`, claimsOf("ann")) + ".",
		"None, unsigned":                  Segments(`{"alg":"None","typ":"JWT"}`, claimsOf("ann")) + ".",
		"HS256, unsigned":                 Segments(plain, claimsOf("ann")) + ".",
		"padded":                          good + "=",
		"padded twice":                    good + "==",
		"claims padded":                   bySecret(head + "." + claims + "="),
		"header padded":                   bySecret(head + "=." + claims),
		"a space in front":                " " + good,
		"a space behind":                  good + " ",
		"a space instead of a dot":        head + " " + claims + "." + signature,
		"a space in the claims":           bySecret(head + "." + claims[:8] + " " + claims[8:]),
		"a tab in the signature":          head + "." + claims + "." + signature[:10] + "\t" + signature[10:],
		"line breaks in the claims":       bySecret(head + "." + claims[:8] + "\r\n" + claims[8:]),
		"a line break in the header":      bySecret(head[:4] + "\n" + head[4:] + "." + claims),
		"a line break in the signature":   head + "." + claims + "." + signature[:10] + "\n" + signature[10:],
		"a line break behind":             good + "\n",
		"a zero behind":                   good + "\x00",
		"a zero in the claims":            bySecret(head + "." + claims[:8] + "\x00" + claims[8:]),
		"a letter too many":               bySecret(head + "." + claims + "A"),
		"loose bits in the claims":        bySecret(head + "." + looseEnd(encoded([]byte(claimsOf("anne"))))),
		"loose bits in the signature":     looseEnd(good),
		"standard base64":                 bySecret(head + "." + standard),
		"quoted":                          `"` + good + `"`,
		"a comma and another":             good + "," + good,
		"Bearer once more":                "Bearer " + good,
		"JSON":                            `{"payload":"` + claims + `"}`,
		"a token within a token":          bySecret(Segments(`{"alg":"HS256","cty":"JWT"}`, good)),
		"a dot in front of the signature": head + "." + claims + ".." + signature,
		"two dots behind":                 good + "..",
		"a tab in front of a dot":         head + "\t." + claims + "." + signature,
		"escapes of URLs":                 strings.ReplaceAll(good, ".", "%2E"),
		"a unicode dot":                   strings.Replace(good, ".", "\uff0e", 1),
		"loose bits in the header": bySecret(
			looseEnd(encoded([]byte(`{"alg": "HS256"}`))) + "." + claims),
		"longer than can be": good + strings.Repeat("A", 5000),
	})
}

// looseEnd returns a non-canonical encoding, with unused bits set in the last character.
func looseEnd(text string) string {
	return text[:len(text)-1] + string(text[len(text)-1]+1)
}

// signatures returns tokens with modified signatures.
func (w *Issuer) signatures() []Case {
	ed, rs := w.Ed(textOfAnn("EdDSA", Edward)), w.RS(textOfAnn("RS256", Rivest))
	ps, es := w.PS(textOfAnn("PS256", Salted)), w.ES(textOfAnn("ES256", Curved))
	hs := w.hs(plain, claimsOf("ann"))
	order, field := elliptic.P256().Params().N, elliptic.P256().Params().P
	flip := func(b []byte, at int) []byte { b[at] ^= 1; return b }
	add := func(b []byte, n *big.Int) []byte { return new(big.Int).Add(n, new(big.Int).SetBytes(b)).Bytes() }
	changes := map[string]func([]byte) []byte{
		"of zeros":        func(b []byte) []byte { return make([]byte, len(b)) },
		"a byte short":    func(b []byte) []byte { return b[:len(b)-1] },
		"a byte long":     func(b []byte) []byte { return append(b, 0) },
		"a zero in front": func(b []byte) []byte { return append([]byte{0}, b...) },
		"first bit":       func(b []byte) []byte { return flip(b, 0) },
		"last bit":        func(b []byte) []byte { return flip(b, len(b)-1) },
		"missing":         func([]byte) []byte { return nil },
	}
	tokens := map[string]string{
		"EdDSA with a high S":          resigned(ed, highS),
		"EdDSA with S = 0":             resigned(ed, func(b []byte) []byte { return append(b[:32], make([]byte, 32)...) }),
		"EdDSA with R = 1, S = 0":      resigned(ed, func([]byte) []byte { return append([]byte{1}, make([]byte, 63)...) }),
		"EdDSA with a bit of S":        resigned(ed, func(b []byte) []byte { b[63] |= 0x80; return b }),
		"RS256, the number one":        resigned(rs, func(b []byte) []byte { return append(make([]byte, len(b)-1), 1) }),
		"RS256, N more":                resigned(rs, func(b []byte) []byte { return add(b, w.RSA.N) }),
		"RS256, N itself":              resigned(rs, func([]byte) []byte { return w.RSA.N.Bytes() }),
		"ES256 with r = 0":             resigned(es, func(b []byte) []byte { return append(make([]byte, 32), b[32:]...) }),
		"ES256 with s = 0":             resigned(es, func(b []byte) []byte { return append(b[:32], make([]byte, 32)...) }),
		"ES256 with r = s = 1":         resigned(es, func([]byte) []byte { return pair(big.NewInt(1), big.NewInt(1)) }),
		"ES256 with r = the order":     resigned(es, func(b []byte) []byte { return append(order.Bytes(), b[32:]...) }),
		"ES256 with s = the order":     resigned(es, func(b []byte) []byte { return append(b[:32], order.Bytes()...) }),
		"ES256 with both of the order": resigned(es, func([]byte) []byte { return pair(order, order) }),
		"ES256 with r = p":             resigned(es, func(b []byte) []byte { return append(field.Bytes(), b[32:]...) }),
		"ES256 with r and s swapped":   resigned(es, func(b []byte) []byte { return slices.Concat(b[32:], b[:32]) }),
		"ES256 of ones":                resigned(es, func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) }),
		"ES256 of half the length":     resigned(es, func(b []byte) []byte { return b[:32] }),
		"PS256, the number one":        resigned(ps, func(b []byte) []byte { return append(make([]byte, len(b)-1), 1) }),
		"PS256, N more":                resigned(ps, func(b []byte) []byte { return add(b, w.PSS.N) }),
		"EdDSA, another signer's":      HS(textOfAnn("EdDSA", Edward), w.Secrets[First]),
	}
	for name, raw := range map[string]string{"HS256": hs, "EdDSA": ed, "RS256": rs, "PS256": ps, "ES256": es} {
		for what, change := range changes {
			tokens[name+" "+what] = resigned(raw, change)
		}
		segments := strings.Split(raw, ".")
		otherClaims := encoded([]byte(claimsOf("eve")))
		tokens[name+" of other claims"] = segments[0] + "." + otherClaims + "." + segments[2]
		tokens[name+" padded"], tokens[name+" twice"] = raw+"=", raw+segments[2]
	}
	return refused(tokens)
}

// highS adds the order of the group to S. The equation holds, but RFC 8032 forbids it.
func highS(signature []byte) []byte {
	order, _ := new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)
	s := slices.Clone(signature[32:])
	slices.Reverse(s) // it is little-endian
	sum := new(big.Int).SetBytes(s)
	sum.Add(sum, order).FillBytes(s)
	slices.Reverse(s)
	return append(signature[:32:32], s...)
}
