#!/bin/bash
# Stands in for nvidia-cuda-mps-control where there is no GPU: with -f it stays and takes commands from a pipe, as the
# real one does, without arguments it passes on what comes on stdin, and fails where no daemon is. The daemon's process id
# goes where the test looks for it.
pipe="$CUDA_MPS_PIPE_DIRECTORY/commands"  # not where CUDA looks for a daemon
if [ "$1" != -f ]; then
  [ -p "$pipe" ] || exit 1
  exec timeout 1 bash -c 'cat >"$0"' "$pipe"
fi
if [ -n "$MPS_REFUSES" ]; then
  echo "$MPS_REFUSES" >&2
  exit 1
fi
mkfifo "$pipe"
exec 3<>"$pipe"
echo "Waiting for clients" >&2
echo "$$ $CUDA_MPS_PIPE_DIRECTORY" >"$MPS_STARTED"
while read -r command _ <&3; do
  [ "$command" = quit ] && exit 0
done
