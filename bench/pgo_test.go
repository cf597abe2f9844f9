package main

import (
	"bytes"
	"testing"

	"github.com/google/pprof/profile"
)

// profileOf is a profile of one function, with what the compiler needs and the place where it was made.
func profileOf(function string, samples int64) *profile.Profile {
	f := &profile.Function{
		ID:         1,
		Name:       function,
		SystemName: function,
		Filename:   "/home/ann/secret/" + function,
		StartLine:  10,
	}
	m := &profile.Mapping{ID: 1, File: "/home/ann/secret/sluice", BuildID: "abc"}
	l := &profile.Location{ID: 1, Mapping: m, Address: 0x1234, Line: []profile.Line{{Function: f, Line: 12}}}
	return &profile.Profile{
		PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 1e7,
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		Sample:     []*profile.Sample{{Location: []*profile.Location{l}, Value: []int64{samples, samples * 1e7}}},
		Location:   []*profile.Location{l}, Function: []*profile.Function{f}, Mapping: []*profile.Mapping{m},
	}
}

func TestMergedProfilesHaveEqualWeightAndNoPaths(t *testing.T) {
	merged, err := mergeForCompiler([]*profile.Profile{profileOf("a", 1000), profileOf("b", 10)})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := merged.WriteUncompressed(&text); err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(text.Bytes(), []byte("secret")) {
		t.Error("it contains the paths of the sources")
	}
	again, err := profile.ParseUncompressed(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	weights := map[string]int64{}
	for _, s := range again.Sample {
		line := s.Location[0].Line[0]
		if line.Line != 12 || line.Function.StartLine != 10 {
			t.Errorf("%s: line %d of a function that begins at %d", line.Function.Name, line.Line, line.Function.StartLine)
		}
		weights[line.Function.Name] += s.Value[1]
	}
	if len(weights) != 2 || weights["a"] != weights["b"] {
		t.Errorf("the weights are %v", weights)
	}
	if _, err := mergeForCompiler([]*profile.Profile{profileOf("idle", 0)}); err == nil {
		t.Error("an empty profile is accepted")
	}
}
