"""Photos of one's own in folders, with what a table beside them says of each."""

from protometry.datamodules.image_folder.data_module import ImageFolder, ImageFolderDataset, folder_name

__all__ = ["ImageFolder", "ImageFolderDataset", "folder_name"]
