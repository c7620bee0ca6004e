"""Commands that delete, stop or destroy what cannot be had again: by their names, by a word behind them, by SQL."""

# ruff: noqa: SIM905 -- tables of words read better as text

from __future__ import annotations

import re
from collections.abc import Sequence

PLAIN = {
    "rm": "deletes files", "rmdir": "deletes folders", "unlink": "deletes files", "srm": "deletes files",
    "shred": "destroys files", "wipe": "destroys files", "rimraf": "deletes files", "del-cli": "deletes files",
    "trash": "deletes files", "trash-put": "deletes files", "truncate": "cuts files", "fallocate": "cuts files",
    "rename": "moves files, over others of the same name", "prename": "moves files, over others of the same name",
    "mmv": "moves files, over others of the same name", "dd": "writes raw data", "wipefs": "destroys a file system",
    "blkdiscard": "destroys a file system", "fdisk": "changes a disk", "sfdisk": "changes a disk",
    "sgdisk": "changes a disk", "parted": "changes a disk", "lvremove": "changes a disk", "vgremove": "changes a disk",
    "cryptsetup": "changes a disk", "mdadm": "changes a disk", "umount": "takes a file system away",
    "dropdb": "deletes a database", "dropuser": "deletes a database's user",
    "sudo": "becomes another user", "su": "becomes another user", "doas": "becomes another user",
    "pkexec": "becomes another user", "runuser": "becomes another user",
    "userdel": "deletes a user", "groupdel": "deletes a group", "passwd": "changes a password",
    "kill": "ends processes", "killall": "ends processes", "pkill": "ends processes", "skill": "ends processes",
    "xkill": "ends processes", "halt": "stops the machine", "poweroff": "stops the machine",
    "reboot": "stops the machine", "shutdown": "stops the machine", "telinit": "stops the machine",
    "eval": "runs text that is put together at run time", "source": "runs a file's commands",
    ".": "runs a file's commands", "crontab": "changes scheduled jobs", "at": "schedules what is not examined",
    "batch": "schedules what is not examined",
}  # fmt: skip
_ELSEWHERE = "it deletes what is kept elsewhere"
_UNINSTALLS = (
    "it uninstalls packages",
    "uninstall remove purge autoremove rm un unlink unpublish erase -R -Rs -Rns del prune delete",
)
_CONTAINERS = ("it removes containers, images or volumes", "rm rmi prune down kill delete")
_STOPS = ("it stops or removes what runs", "stop disable mask kill destroy delete undefine halt rm down")
_REMOTE = (
    _ELSEWHERE,
    "rm rb delete purge drain --delete delete-object delete-objects delete-bucket delete-table terminate-instances "
    "deletefile destroy uninstall del -auto-approve --auto-approve",
)
_VERBS: dict[str, tuple[str, str]] = {
    **dict.fromkeys("pip pip3 uv conda mamba micromamba poetry pdm pipx apt apt-get aptitude dnf yum zypper pacman apk "
                    "brew port snap flatpak npm pnpm yarn gem cargo".split(), _UNINSTALLS),
    **dict.fromkeys("docker docker-compose podman nerdctl buildah kind minikube lxc".split(), _CONTAINERS),
    **dict.fromkeys("systemctl service launchctl supervisorctl pm2 vagrant virsh multipass".split(), _STOPS),
    **dict.fromkeys("kubectl oc helm aws gsutil gcloud az rclone terraform tofu pulumi heroku flyctl fly gh s3cmd mc "
                    "etcdctl consul vault bq hdfs".split(), _REMOTE),
    "zfs": (_ELSEWHERE, "destroy rollback"),
    "zpool": (_ELSEWHERE, "destroy labelclear"),
    "btrfs": (_ELSEWHERE, "delete"),
    "redis-cli": (_ELSEWHERE, "flushall flushdb del unlink shutdown eval"),
    "fuser": ("it ends processes", "-k -ki -km"),
    "tmux": ("it ends processes", "kill-server kill-session kill-pane kill-window"),
    "init": ("it stops the machine", "0 1 6"),
    "zip": ("it deletes files", "-m -d -mr -rm --move --delete"),
    "ar": ("it deletes files", "d -d"),
    "tar": ("it deletes files", "--delete --remove-files --overwrite --recursive-unlink --unlink-first -U"),
}  # fmt: skip
"""Words behind a command's name with which it deletes, and why that is told."""
_RECURSIVE = frozenset("chmod chown chgrp setfacl chattr".split())
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_GAP = r"(?:\s|--[^\n]{0,4000}\n)++"
_NAME = r"[\w.\"`]{1,80}"
SQL = re.compile(
    rf"\b(?:drop{_GAP}(?:table|database|schema|view|materialized|index|user|role|column|keyspace|collection)"
    rf"|delete{_GAP}from|truncate{_GAP}table)\b"
    rf"|\bupdate{_GAP}{_NAME}{_GAP}set{_GAP}{_NAME}\s*=(?![^;]{{0,4000}}\bwhere\b)",
    re.IGNORECASE | re.DOTALL,
)
_TRUNCATE = rf"truncate{_GAP}{_NAME}(?:\s+(?:cascade|restrict))?"
_TRUNCATES = re.compile(rf"\b{_TRUNCATE}", re.IGNORECASE | re.DOTALL)
_ONLY_TRUNCATES = re.compile(rf"\s*{_TRUNCATE}\s*+(?:;\s*+)?", re.IGNORECASE | re.DOTALL)
_CLIENTS = re.compile(r"\b(?:psql|mysql|mariadb|duckdb|cqlsh|sqlcmd|clickhouse|clickhouse-client|bq|usql|snowsql)\b")


def sql_danger(text: str) -> str:
    """Why SQL in a command or a string of code destroys; "" when it does not."""
    end = text.rfind("*/") + 2 if "*/" in text else 0  # beyond it no comment ends
    without = _COMMENT.sub(" ", text[:end]) + text[end:]
    return _sql_danger(text) or (_sql_danger(without) if without != text else "")


def _sql_danger(text: str) -> str:
    found = SQL.search(text) or _ONLY_TRUNCATES.fullmatch(text)
    if found is None and _CLIENTS.search(text):
        found = _TRUNCATES.search(text)
    return f"it contains {' '.join(found[0][:60].upper().split())}" if found else ""


def deletes(name: str, arguments: Sequence[str], letters: str) -> str:
    """The reason, "" when there is none. `letters`: of all short options together."""
    if name == "rsync":
        gone = any(word.startswith(("--del", "--remove-source", "--existing")) for word in arguments)
        return "it deletes files" if gone else ""
    if name in _RECURSIVE:
        whole = "R" in letters or "--recursive" in arguments
        return "it changes the rights of whole folders" if whole else ""
    why, words = _VERBS.get(name, ("", ""))
    return why if set(words.split()) & {word.lower() if name == "redis-cli" else word for word in arguments} else ""
