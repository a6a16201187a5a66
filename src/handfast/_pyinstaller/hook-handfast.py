"""PyInstaller's hook: put the scripts and all modules into a frozen program."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules

datas = collect_data_files("handfast")
hiddenimports = collect_submodules("handfast", filter=lambda name: not name.startswith("handfast.cli"))
