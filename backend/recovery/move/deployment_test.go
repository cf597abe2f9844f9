package move_test

import (
	"errors"
	"strconv"
	"testing"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/move"
)

// An interrupted move is not finished with the database of another deployment.
func TestFinishRefusesTheDatabaseOfAnotherDeployment(t *testing.T) {
	w := newWorld(t)
	source, target := w.owner(), w.other()
	w.killAtFlip(target)
	m, err := move.New(move.Config{Server: w.server, Store: newDatabase(t), Space: space, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	result, err := m.Move(t.Context(), w.shard, target.Addr)
	if _, foreign := errors.AsType[*guard.DeploymentError](err); !foreign {
		t.Errorf("%+v, %v, want a DeploymentError", result, err)
	}
	if w.owner() != source {
		t.Error("the shard has moved")
	}
}

// A move is suspended before its hold, longer than its locks, while an admin lets another deployment take the data
// over. The move does not take the data back.
func TestSuspendedMoveTakesNothingBack(t *testing.T) {
	w := newWorld(t)
	if _, err := w.db.NextFence(t.Context(), 1000); err != nil { // its fences are higher
		t.Fatal(err)
	}
	db := newDatabase(t)
	deployment, _, err := db.Generation(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	guards, r := newRebuilder(t, w.server, db)
	w.db.began = func() {
		err := guard.ErrBusy
		for errors.Is(err, guard.ErrBusy) { // the move may renew its lock before the rebuild has it
			if err := guards.Of(w.shard).Raw().Del(t.Context(), w.shard.RebuildLock()).Err(); err != nil {
				t.Fatal(err)
			}
			err = r.Run(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	}
	result, err := w.move(w.other())
	if _, foreign := errors.AsType[*guard.DeploymentError](err); !foreign {
		t.Errorf("%+v, %v, want a DeploymentError", result, err)
	}
	recorded := w.owner().Client().HGet(t.Context(), w.shard.Guard(), "deployment").Val()
	if recorded != strconv.FormatInt(deployment, 10) {
		t.Errorf("the data is of deployment %s, want %d, which took it over", recorded, deployment)
	}
}
