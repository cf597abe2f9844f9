package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The completion scripts work in their shells. bash is always installed, fish and zsh on some machines.
func TestShellsComplete(t *testing.T) {
	t.Parallel()
	bin, data := t.TempDir(), t.TempDir()
	if err := os.Symlink(binary, filepath.Join(bin, "sluice")); err != nil {
		t.Fatal(err)
	}
	u := startUp(t, data)
	for shell, script := range map[string]string{
		// The parts of the package bash-completion that the script needs.
		"bash": `_get_comp_words_by_ref() { cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; }
			source <(sluice completion bash)
			COMP_WORDS=(sluice sale pause "") COMP_CWORD=3 COMP_LINE="sluice sale pause " COMP_POINT=18
			__start_sluice
			printf '%s\n' "${COMPREPLY[@]}"`,
		"fish": `sluice completion fish | source; complete -C "sluice sale pause "`,
		"zsh":  `sluice completion zsh > _sluice; autoload -U compinit; compinit -u -D; source ./_sluice; whence _sluice; sluice __complete sale pause ""`,
	} {
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not installed", shell)
			continue
		}
		cmd := exec.Command(path, "-c", script)
		cmd.Dir = t.TempDir()
		cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SLUICE_DATA=" + data}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "demo") || strings.Contains(string(out), "rror") {
			t.Errorf("%s: %v\n%s\n%s", shell, err, out, u.output())
		}
	}
}
