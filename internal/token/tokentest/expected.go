package tokentest

import (
	"strings"

	"sluice/internal/token"
)

// Expected has the issuer and audience that verifiers of ExpectedCases require.
var Expected = token.Expect{Issuer: "https://login.example/", Audience: "sluice"}

// ExpectedCases returns tokens of the P-256 key and of the secret, which are valid if the subject is not empty.
func (w *Issuer) ExpectedCases() []Case {
	const iss, aud = `"iss":"https://login.example/"`, `"aud":"sluice"`
	var cases []Case
	for claims, good := range map[string]bool{
		iss + "," + aud:                   true,
		aud + "," + iss:                   true,
		iss + `,"aud":["sluice"]`:         true,
		iss + `,"aud":["other","sluice"]`: true,
		iss + `,"aud":["sluice","sluice",7,null,{"a":["b"]}]`:   true,
		`"iss":"https:\/\/login.example\/","aud":"\u0073luice"`: true,
		iss:                                      false,
		aud:                                      false,
		`"jti":"1"`:                              false,
		`"iss":"https://login.example",` + aud:   false,
		`"iss":"https://login.example/x",` + aud: false,
		`"iss":"HTTPS://login.example/",` + aud:  false,
		`"iss":" https://login.example/",` + aud: false,
		`"iss":["https://login.example/"],` + aud:       false,
		`"iss":null,` + aud:                             false,
		`"iss":"",` + aud:                               false,
		`"iss":"sluice","aud":"https://login.example/"`: false,
		`"Iss":"https://login.example/",` + aud:         false,
		iss + `,"aud":"Sluice"`:                         false,
		iss + `,"aud":"sluice "`:                        false,
		iss + `,"aud":"sluice\u0000"`:                   false,
		iss + `,"aud":"sluic"`:                          false,
		iss + `,"aud":"sluice,other"`:                   false,
		iss + `,"aud":""`:                               false,
		iss + `,"aud":null`:                             false,
		iss + `,"aud":[]`:                               false,
		iss + `,"aud":[["sluice"]]`:                     false,
		iss + `,"aud":{"sluice":"sluice"}`:              false,
		iss + `,"aud":{"1":"sluice"}`:                   false,
		iss + `,"aud":["other"]`:                        false,
		iss + `,"aud":0`:                                false,
		iss + `,"aud":true`:                             false,
		iss + `,"azp":"sluice"`:                         false,
		iss + "," + iss + "," + aud:                     false, // names must not be repeated
		iss + `,"aud":"other","aud":"sluice"`:           false,
	} {
		subject := ""
		if good {
			subject = "ann"
		}
		text := strings.TrimSuffix(claimsOf("ann"), "}") + "," + claims + "}"
		cases = append(cases,
			Case{Name: "P-256: " + claims, Token: w.ES(Segments(header("ES256", Curved), text)), Subject: subject},
			Case{Name: "secret: " + claims, Token: w.hs(plain, text), Subject: subject})
	}
	return cases
}
