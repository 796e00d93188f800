# Bash completion for eggrun(8). Verbs and flags come from eggrun itself, ids
# from its list. Belongs in /usr/share/bash-completion/completions/eggrun.

_eggrun() {
	local line=${COMP_LINE:0:COMP_POINT} words cur flag= verb=() word globals=() i
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	cur=${words[-1]}
	for ((i = 1; i < ${#words[@]} - 1; i++)); do
		word=${words[i]}
		case $word in
		--root=*) globals=("$word") ;;
		--root) globals=("$word" "${words[++i]}") ;;
		--log | --log-format | --cgroup-manager | --rootless | --egress-profile) ((++i)) ;;
		-*) ;;
		*)
			verb=("$word")
			# These have verbs of their own.
			[[ $word == @(policy|mounts) ]] && ((i + 2 < ${#words[@]})) && verb+=("${words[i + 1]}")
			break
			;;
		esac
	done
	((${#words[@]} > 2)) && flag=${words[-2]}
	# --flag=value is two words and a "=" between them for the shell.
	[[ $cur == --*=* ]] && flag=${cur%%=*} cur=${cur#*=}

	COMPREPLY=()
	case $flag in
	--bundle | -b | --root | --image-path | --work-path | --parent-path) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
	--log | --pid-file | --console-socket | --pidfd-socket | --process | -p | --resources | -r)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	--log-format) mapfile -t COMPREPLY < <(compgen -W "text json" -- "$cur") ;;
	--cgroup-manager) mapfile -t COMPREPLY < <(compgen -W "cgroupfs systemd disabled" -- "$cur") ;;
	--manage-cgroups-mode) mapfile -t COMPREPLY < <(compgen -W "soft full strict ignore" -- "$cur") ;;
	--rootless) mapfile -t COMPREPLY < <(compgen -W "true false auto" -- "$cur") ;;
	esac
	((${#COMPREPLY[@]} > 0)) && return
	if [[ $cur == -* || ${verb[*]} == @(|policy|mounts) ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$("${words[0]}" "${verb[@]}" "$cur" --generate-bash-completion 2>/dev/null)" -- "$cur")
		return
	fi
	case ${verb[*]} in
	"policy check") mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
	create | run | restore | spec | features | list | check) ;; # no container that is there
	*) mapfile -t COMPREPLY < <(compgen -W "$("${words[0]}" "${globals[@]}" list -q 2>/dev/null)" -- "$cur") ;;
	esac
}

complete -o filenames -F _eggrun eggrun
