package api

import "testing"

func TestMissingFieldsOfTheConfigAreNamed(t *testing.T) {
	_, err := New(Config{Admitter: newWorld(), Subscriptions: &fakeSubscriptions{}})
	const want = `api: Config.Stock is missing
api: Config.Finder is missing
api: Config.Orders is missing
api: Config.Dead is missing
api: Config.Tokens is missing
api: Config.Archived is missing
api: Config.Known is missing
api: Config.Intact is missing
api: Config.QueueFull is missing
api: Config.PushKey is missing
api: Config.CheckPushURL is missing`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
