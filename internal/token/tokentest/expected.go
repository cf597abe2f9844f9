package tokentest

import (
	_ "embed"
	"strings"

	"sluice/internal/token"
)

// Expected has the issuer and audience that verifiers of ExpectedCases require.
var Expected = token.Expect{Issuer: "https://login.example/", Audience: "sluice"}

// expectedTable lists members of claims and their result: accepted or rejected.
//
//go:embed testdata/expected.txt
var expectedTable string

// ExpectedCases returns tokens of the P-256 key and of the secret, which are valid if the subject is not empty.
func (w *Issuer) ExpectedCases() []Case {
	var cases []Case
	for members, result := range readTable(expectedTable) {
		subject := ""
		if result == "accepted" {
			subject = "ann"
		}
		claims := strings.TrimSuffix(claimsOf("ann"), "}") + "," + members + "}"
		cases = append(cases,
			Case{Name: "P-256: " + members, Token: w.ES(Segments(header("ES256", Curved), claims)), Subject: subject},
			Case{Name: "secret: " + members, Token: w.hs(plain, claims), Subject: subject})
	}
	return cases
}
