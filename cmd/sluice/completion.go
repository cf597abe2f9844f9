package main

import "github.com/spf13/cobra"

// addCompletion adds the command that prints the shells' scripts, with an example of each.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd("completion") // explicitly, because cobra leaves it out while it parses flags
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		// or an unknown shell would be shown the help, and exit 0
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		c.Long = "" // the rest repeats the Short
		for shell, example := range map[string]string{
			"bash": "  source <(sluice completion bash)", "zsh": `  sluice completion zsh > "${fpath[1]}/_sluice"`,
			"fish":       "  sluice completion fish > ~/.config/fish/completions/sluice.fish",
			"powershell": "  sluice completion powershell | Out-String | Invoke-Expression",
		} {
			if sub, _, err := c.Find([]string{shell}); err == nil {
				sub.Long, sub.Example = "", example
			}
		}
	}
}
