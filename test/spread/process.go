package spread

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"sluice/backend/spread"
)

// fate is the outcome of one call to a store.
type fate int

const (
	fine      fate = iota
	before         // the call fails, and has had no effect
	after          // its reply is lost
	twice          // it is executed twice
	late           // it is executed after its caller gave up
	dieBefore      // the process crashes before it
	dieAfter       // the process crashes after it
	fates
)

var fateNames = [fates]string{
	"", ": fails before", ": reply lost", ": twice", ": late", ": crashes before", ": crashes after",
}

var (
	errCut  = errors.New("the connection was cut")
	errDead = errors.New("this process is dead")
)

// process is a simulated process. It is a coroutine: it runs while the world waits for it, until its next call.
type process struct {
	w    *world
	name string
	main func(*process)
	turn chan fate
	rnd  *rand.Rand
	// dead: it crashed. ended: its main function has returned.
	dead, ended bool
}

// call waits for its turn and makes one call with the fate that the seed selects.
func (p *process) call(what string, run func() error) error {
	if p.dead {
		return errDead
	}
	p.w.parked <- p
	f := <-p.turn
	p.w.note("%s: %s%s", p.name, what, fateNames[f])
	switch f {
	case before:
		return errCut
	case late:
		p.w.late = append(p.w.late, run)
		return errCut
	case dieBefore:
		p.dead = true
		return errDead
	}
	err := run()
	if f == twice && err == nil {
		err = run()
	}
	switch f {
	case after:
		return errCut
	case dieAfter:
		p.dead = true
		return errDead
	}
	return err
}

// once is call for a step that is not idempotent in the model: it is not executed twice.
func (p *process) once(what string, run func() error) error {
	done := false
	return p.call(what, func() error {
		if done {
			return nil
		}
		done = true
		return run()
	})
}

// pause lets other processes run.
func (p *process) pause() { _ = p.call("pause", func() error { return nil }) }

// The methods below are those of the stores that Mover uses, each one call.

func (p *process) States(ctx context.Context, of spread.Sale) ([]spread.State, error) {
	states := make([]spread.State, of.Spread)
	for i := range states { // every segment at an instant of its own
		err := p.call("read", func() error {
			all, err := p.w.stores.States(ctx, of)
			if err == nil {
				states[i] = all[i]
			}
			return err
		})
		if err != nil {
			states[i] = spread.State{}
		}
	}
	if p.dead {
		return nil, errDead
	}
	return slices.Clone(states), nil // a late call writes to the others
}

func (p *process) SetApart(ctx context.Context, of spread.Sale, wanted spread.Move) (t *spread.Transfer, err error) {
	ctx = context.WithoutCancel(ctx) // a server executes a late call although its caller gave up
	err = p.call(fmt.Sprintf("set apart %+v", wanted),
		func() error { t, err = p.w.stores.SetApart(ctx, of, wanted); return err })
	return t, err
}

func (p *process) Apply(ctx context.Context, of spread.Sale, segment int, to spread.Allocation) error {
	ctx = context.WithoutCancel(ctx) // see SetApart
	return p.call(fmt.Sprintf("apply %+v to %d", to, segment),
		func() error { return p.w.stores.Apply(ctx, of, segment, to) })
}

func (p *process) Allocations(ctx context.Context, saleID string) (all []spread.Allocation, err error) {
	err = p.call("allocations", func() error { all, err = p.w.stores.Allocations(ctx, saleID); return err })
	return all, err
}

func (p *process) Commit(
	ctx context.Context, saleID string, t spread.Transfer,
) (all []spread.Allocation, err error) {
	p.w.result.Commits++
	err = p.call(fmt.Sprintf("commit %+v", t), func() error { all, err = p.w.stores.Commit(ctx, saleID, t); return err })
	return all, err
}
